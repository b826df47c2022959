"""When a worker announces its schedules, how soon it looks again, and what becomes of the rest when one duty fails.
On a real store, with a clock of numbers."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from holdfast.domain.events import Event, Events, Problem, Reaping, ScheduleFailed, Ticked
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.schedule import Declaration
from holdfast.domain.timing import choose
from holdfast.domain.views import WorkerRow
from holdfast.periodic.duties import ANNOUNCE_EVERY_SECONDS, Duties
from holdfast.periodic.retrying import Retrying
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.upgrade import upgrade
from holdfast.wiring.sql import open_database, open_store
from tests.chaos.databases import query
from tests.servers.waiting import wait_until

MINUTE = ANNOUNCE_EVERY_SECONDS + 1


class Release:
    """A worker's duties, with the schedules that its code declares."""

    def __init__(self, store: SqlStore, name: str, *declared: Declaration) -> None:
        self.declared = list(declared)
        self.seen: list[Event] = []
        self._now = 1_000.0
        events = Events(self.seen.append)
        self.duties = Duties(
            lambda: store,
            name,
            lambda: choose(60.0),
            events,
            lambda: None,
            lambda: [TaskInfo("tidy_up")],
            lambda: WorkerRow(id=name, host="here", pid=1, state="idle"),
            Retrying("duties", events, longest=0.1),
            lambda: self.declared,
        )

    def pass_time(self, seconds: float) -> None:
        self._now += seconds
        self.duties.step(self._now)
        wait_until(self._is_done, what="the round is over")

    def _is_done(self) -> bool:
        self.duties.step(self._now)
        return not self.duties.pending

    def seconds_to_next(self) -> float:
        return self.duties.wake_at() - self._now


Releasing = Callable[..., Release]


def tidy(queue: str) -> Declaration:
    return Declaration(name="tidy", task="tidy_up", every_seconds=600, job={"queue": queue})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def release(store: SqlStore) -> Iterator[Releasing]:
    started: list[Release] = []

    def start(name: str, *declared: Declaration) -> Release:
        started.append(Release(store, name, *declared))
        return started[-1]

    yield start
    for one in started:
        one.duties.close()


def queue_of(store: SqlStore) -> str:
    return str(store.schedule("tidy").job["queue"])


def test_of_two_releases_the_one_that_started_last_has_the_word(release: Releasing, store: SqlStore) -> None:
    old, new = release("old", tidy("old")), release("new", tidy("new"))
    old.pass_time(0)
    assert queue_of(store) == "old"
    new.pass_time(0)
    for running in (old, new, old):
        running.pass_time(MINUTE)
        assert queue_of(store) == "new"
    old.declared = [tidy("newest")]  # it has read new code
    old.pass_time(0.1)
    assert queue_of(store) == "newest"


def test_it_looks_seldom_while_there_is_nothing_and_when_something_is_due(release: Releasing, store: SqlStore) -> None:
    worker = release("ann")
    worker.pass_time(0)
    waits = [worker.seconds_to_next()]
    for _ in range(3):  # of the other duties, none of which comes sooner than the reaper's
        worker.pass_time(waits[-1])
        waits.append(worker.seconds_to_next())
    assert min(waits) >= 5.0
    worker.declared = [tidy("slow")]
    worker.pass_time(0)
    assert 4.9 < worker.seconds_to_next() <= 5.0, "others may change something"
    store.set_schedule("tidy", every_seconds=1)
    worker.pass_time(5)
    assert worker.seconds_to_next() <= 1.0


def test_what_fired_and_what_cannot_is_told_and_the_latter_once(release: Releasing, store: SqlStore, url: str) -> None:
    worker = release("ann", tidy("slow"), Declaration(name="broken", task="tidy_up", cron="0 9 * * *"))
    worker.pass_time(0)
    query(url, "UPDATE holdfast_schedules SET next_at = created_at")
    query(url, "UPDATE holdfast_schedules SET cron = 'whenever' WHERE name = 'broken'")
    worker.pass_time(5)
    worker.pass_time(5)
    told = [(type(event), event.schedule) for event in worker.seen if isinstance(event, Ticked | ScheduleFailed)]
    assert sorted(told, key=str) == [(ScheduleFailed, "broken"), (Ticked, "tidy")]
    assert len(store.jobs().items) == 1


@pytest.fixture
def url_without_schedules(postgres_database: str) -> Iterator[str]:
    """Of somebody who may do everything with every table but that of the schedules."""
    database = open_database(postgres_database)
    upgrade(database.engine)
    database.close()
    role = f"poor_{uuid.uuid4().hex}"
    query(postgres_database, f"CREATE ROLE {role} LOGIN PASSWORD 'poor'")
    query(postgres_database, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    query(postgres_database, f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
    query(postgres_database, f"REVOKE ALL ON holdfast_schedules FROM {role}")
    yield make_url(postgres_database).set(username=role, password="poor").render_as_string(hide_password=False)
    query(postgres_database, f"DROP OWNED BY {role}")
    query(postgres_database, f"DROP ROLE {role}")


def test_who_may_not_touch_the_schedules_does_all_other_duties(
    postgres_database: str, url_without_schedules: str
) -> None:
    store = open_store(url_without_schedules)
    store.enqueue(NewJob(task="tidy_up", lease_seconds=1))
    [lost] = store.claim("dead", 1)
    worker = Release(store, "ann", tidy("slow"))
    try:
        expired = "SELECT lease_expires_at < holdfast_now() FROM holdfast_jobs"
        wait_until(lambda: query(postgres_database, expired) == [(True,)], what="the lease is over")
        worker.pass_time(0)
        assert any(isinstance(event, Reaping) for event in worker.seen)
        assert store.job(lost.job_id).state is not State.RUNNING
        assert [shown.id for shown in store.workers()] == ["ann"]
        assert [task.name for task in store.announced_tasks()] == ["tidy_up"]
        for _ in range(5):
            worker.pass_time(61)
        told = [event for event in worker.seen if isinstance(event, Problem)]
        assert sorted(problem.where for problem in told) == [
            "the duty to announce schedules",
            "the duty to fire schedules",
        ]
        assert all("permission denied for table holdfast_schedules" in problem.message for problem in told)
        assert worker.seconds_to_next() > 0
        role = make_url(url_without_schedules).username
        query(postgres_database, f"GRANT ALL ON holdfast_schedules TO {role}")
        worker.pass_time(61)
        assert queue_of(store) == "slow"
    finally:
        worker.duties.close()
        store.close()
