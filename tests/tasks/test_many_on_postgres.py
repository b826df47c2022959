"""Many at once on Postgres: the server takes in the first while the others are made, and all or nothing is kept."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from holdfast import App, InvalidInput, RetryPolicy, State
from holdfast.domain.alike import AlikeJobs
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import upgrade
from holdfast.stores.verbs.enqueueing import BY_THE_PAGE_FROM
from holdfast.wiring.sql import open_database

MANY = 5_000  # several blocks of what is sent at once


@pytest.fixture
def app(postgres_database: str) -> Iterator[App]:
    database = open_database(postgres_database)
    upgrade(database.engine)
    database.close()
    app = App(postgres_database)
    yield app
    app.close()


def counts(app: App) -> dict[str, int]:
    assert isinstance(app.store, SqlStore)
    return app.store.counts()


def add(app: App) -> Any:
    @app.task(queue="sums", version=2)
    def add(a: int, b: str = "") -> None: ...

    return add


def test_each_is_stored_as_one_by_one_would_have(app: App) -> None:
    task = add(app)
    texts = ["", "tab\there", "back\\slash", 'quo"te', "línea\n", "\\N", "\u2028", "😀"]
    alone = [task.enqueue(1, text).job() for text in texts]
    together = [handle.job() for handle in task.enqueue_many([(1, text) for text in texts] * 5)]
    assert len(together) == 40  # enough to be sent as lines
    same = ("task", "task_version", "queue", "state", "payload", "spec_hash", "lease_seconds", "max_attempts")
    for one, many in zip(alone * 5, together, strict=True):
        assert [getattr(one, name) for name in same] == [getattr(many, name) for name in same]


@pytest.mark.parametrize("count", [40, BY_THE_PAGE_FROM])
def test_what_is_not_as_usual_is_stored_too_and_many_have_one_time(app: App, count: int) -> None:
    task = add(app)
    options = {"priority": -7, "source": "shop", "max_attempts": 9, "max_crashes": 8, "lease": "5m", "timeout": "1h"}
    retry = RetryPolicy(base=2.0)
    for given in ({}, options, {**options, "retry": retry, "queue": "default"}):
        using = task.using(**given)
        alone = using.enqueue(1).job()
        together = [handle.job() for handle in using.enqueue_many([(1,)] * count)]
        own = {"id", "run_after", "created_at", "updated_at"}
        same = {name: value for name, value in asdict(alone).items() if name not in own}
        for job in together:
            assert {name: value for name, value in asdict(job).items() if name not in own} == same
        times = {time for job in together for time in (job.run_after, job.created_at, job.updated_at)}
        assert min(times) > alone.created_at
        assert len(times) == 1 or count < BY_THE_PAGE_FROM


@pytest.mark.parametrize("wrong", [0, 150, MANY - 1])
def test_one_wrong_item_anywhere_keeps_all_of_them_out(app: App, wrong: int) -> None:
    task = add(app)
    items: list[Any] = [(number,) for number in range(MANY)]
    items[wrong] = ("no number",)
    with pytest.raises(InvalidInput, match=rf"items\[{wrong}\]\.a"):
        task.enqueue_many(items)
    assert counts(app) == {}
    task.enqueue_many([(1,)] * 20)  # and the connection is as good as before
    assert counts(app) == {State.PENDING: 20}


def test_a_payload_that_is_too_large_keeps_all_of_them_out(app: App) -> None:
    task = add(app)
    with pytest.raises(InvalidInput, match="limit is"):
        task.enqueue_many([(1, "x")] * 300 + [(1, "x" * 300_000)])
    assert counts(app) == {}


def test_items_are_made_before_anything_is_asked_of_the_store(app: App) -> None:
    """A generator of the caller's may take its time: no transaction waits for it."""
    task = add(app)

    def items() -> Iterator[tuple[int]]:
        for number in range(30):
            assert counts(app) == {}
            yield (number,)

    assert len(task.enqueue_many(items())) == 30


def test_alike_jobs_are_a_sequence_of_jobs() -> None:
    like = NewJob(task="add", queue="sums", payload={})
    jobs = AlikeJobs(like, 3, lambda index: {"a": index})
    assert [job.payload for job in jobs] == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert jobs[-1] == jobs[2] == NewJob(task="add", queue="sums", payload={"a": 2})
    assert [job.payload["a"] for job in jobs[1:]] == [1, 2]
    with pytest.raises(IndexError):
        _ = jobs[3]
    assert list(jobs.identified()) == [(job.spec_hash, job.payload_json) for job in jobs]
    assert [job.traceparent for job in jobs.with_traceparent("00-a-b-01")] == ["00-a-b-01"] * 3
