"""A store that gives one given job, once, and says why not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.timing import choose
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from holdfast.worker.one_job import START_SECONDS, Errand, OneJobStore, _StartLimit
from holdfast.worker.supervisor import Supervisor

NOT_NOW = "it is not due yet, its queue is paused, or a limit is reached"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('one') / 'jobs.db'}")
    yield store
    store.close()


def asked(store: SqlStore, job_id: str, tasks: tuple[str, ...] = ("t",)) -> tuple[list[Claimed], str | None]:
    errand = Errand(job_id)
    one = OneJobStore(store, errand, choose(60.0))
    claimed = one.claim("me", 1, None, tasks)
    assert one.claim("me", 1, None, tasks) == [], "once"
    return claimed, errand.why_not


def test_a_job_that_can_be_had_is_had_once(store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="t")).id
    [claimed], why_not = asked(store, job_id)
    assert (claimed.job_id, claimed.attempt, why_not) == (job_id, 1, None)
    assert asked(store, job_id) == ([], "another worker holds it")


def test_it_says_why_not(store: SqlStore) -> None:
    store.pause_queue("paused")
    cancelled = store.enqueue(NewJob(task="t")).id
    store.cancel([cancelled])
    refused = {
        "01a00000-0000-7000-8000-000000000000": "there is no such job",
        store.enqueue(NewJob(task="other")).id: "this app has no task other",
        store.enqueue(NewJob(task="t", delay="1h")).id: NOT_NOW,
        store.enqueue(NewJob(task="t", queue="paused")).id: NOT_NOW,
        cancelled: "it is cancelled already",
    }
    for job_id, why_not in refused.items():
        assert asked(store, job_id) == ([], why_not)
    assert [len(store.events(job_id)) for job_id in list(refused)[1:4]] == [1, 1, 1], "nothing was changed"


def test_an_answer_that_got_lost_is_asked_for_again(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = store.enqueue(NewJob(task="t")).id
    claim, losses = store.claim_jobs, iter([True])

    def lossy(*arguments: object, **named: object) -> list[Claimed]:
        found = claim(*arguments, **named)  # type: ignore[arg-type]
        if next(losses, False):
            raise StoreUnavailable("cut")
        return found

    monkeypatch.setattr(store, "claim_jobs", lossy)
    [claimed], why_not = asked(store, job_id)
    assert (claimed.job_id, claimed.attempt, why_not) == (job_id, 1, None)


@pytest.mark.parametrize(
    ("ready", "waited", "is_refused"),
    [(False, START_SECONDS + 1, True), (False, START_SECONDS, False), (True, START_SECONDS + 1, False)],
    ids=["hangs", "still has time", "was imported"],
)
def test_an_app_that_hangs_in_its_import_is_refused(ready: bool, waited: float, is_refused: bool) -> None:
    supervisor: Any = SimpleNamespace(
        pool=SimpleNamespace(ready=ready), seconds_since_answer=lambda: waited, refusal=None
    )
    limit = _StartLimit(cast(Supervisor, supervisor))
    limit.step(0.0)
    if is_refused:
        assert isinstance(supervisor.refusal, ConfigurationError)
        assert str(supervisor.refusal).startswith("the app was not imported within 60 s: import it by hand")
    else:
        assert supervisor.refusal is None
    assert limit.wake_at() == float("inf"), "it needs no step of its own"
