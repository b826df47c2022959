"""A healthy run with every feature, in little: its ledger, made by the store's own verbs, and its notes.

And what is done to a copy of it: violations are planted by telling untruths in the notes, by verbs that nobody noted,
and by SQL on a connection on which the database accepts anything.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine, text

from holdfast.domain.answers import Settled
from holdfast.domain.digests import token_digest
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.schedule import Declaration
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from holdfast.torture import notes
from holdfast.torture.checker import Expectations, Judged, LimitedSource, Ticking, judge
from holdfast.torture.notes import Notebook
from holdfast.torture.results import Broken, Strike
from tests.verify.ledger import guards_off

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 2.0
DATABASE, HTTP, REDIS, RQ = "worker-database-1-0a", "worker-http-1-0b", "worker-redis-2-0c", "rq-1-0d"
CONTRACT = "contract-1"
BROKEN = Failed(JobError("boom", "it broke"))
HOPELESS = Failed(JobError("bad", "it will never work", retryable=False))
INVALID = Failed(JobError("invalid_arguments", "the payload is not JSON that can be read", retryable=False))
KILLED = Crashed("killed by signal 9", signal=9)

EXPECTED = Expectations(
    began_at=BEGAN.timestamp(),
    ended_at=BEGAN.timestamp() + 600,
    calm=frozenset({"add", "fetch", "tick"}),
    poison={"poison": 3},
    undecodable=frozenset({"undecodable"}),
    unnoted=frozenset({"command"}),
    settled_inside=frozenset({"transfer"}),
    schedules=(Ticking("every-ten", "tick", 10.0),),
    sources=(LimitedSource("shop", max_concurrent=2, rate_limit_per_minute=60, burst=1),),
    queues={"narrow": 1},
)


class Clock(Protocol):
    """The store's."""

    now: datetime

    def move(self, seconds: float) -> None: ...


class FileClock:
    """Of an SQLite store. Every look takes a millisecond, so that no two events are of one moment."""

    def __init__(self, now: datetime = BEGAN) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class ServerClock:
    """Of a Postgres store: it stands still between two moves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.now = BEGAN
        self.move(0)

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
                f" $$SELECT timestamptz '{self.now.isoformat()}'$$"
            )


@dataclass(slots=True)
class Run:
    """What a run's processes do, all of them in this one."""

    url: str
    folder: Path
    clock: Clock
    store: SqlStore
    jobs: dict[str, str] = field(default_factory=dict)
    notebooks: dict[str, Notebook] = field(default_factory=dict)

    @property
    def notes_folder(self) -> Path:
        return self.folder / "notes"

    def note(self, *said: notes.Note, by: str = "client-1") -> None:
        if by not in self.notebooks:
            self.notebooks[by] = Notebook(self.notes_folder, by)
        self.notebooks[by].write(*said)

    def name_job(self, task: str) -> str:
        job_id = str(uuid.UUID(int=(0x01890A5DAC967000 << 64) | (0x8000 << 48) | (len(self.jobs) + 1)))
        self.jobs[f"{task} {len(self.jobs)}"] = job_id
        return job_id

    def enqueue(self, task: str, **options: Any) -> str:
        """As a client does: the intention, the call, the answer."""
        job_id = self.name_job(task)
        self.note(notes.Intended([job_id], task))
        options = {"lease_seconds": LEASE_SECONDS, "retry": RetryPolicy(base=1.0, jitter=0.0), **options}
        self.store.enqueue(NewJob(task=task, id=job_id, **options))
        self.note(notes.Acknowledged([job_id], task, "database"))
        return job_id

    def insert_undecodable(self) -> str:
        """As the fault does: by hand, with a payload that no worker can decode."""
        job_id = self.name_job("undecodable")
        self.note(notes.Intended([job_id], "undecodable"))
        with self.store.database.engine.begin() as connection:
            insert = "INSERT INTO holdfast_jobs (id, task, payload) VALUES (:id, 'undecodable', :payload)"
            connection.execute(text(insert), {"id": job_id, "payload": '{"number":1e999}'})
        return job_id

    def claim(self, job_id: str, worker: str = DATABASE) -> Claimed:
        self.clock.move(1.1)
        claimed = self.store.claim_job(worker, job_id)
        assert claimed is not None, self.store.job(job_id)
        return claimed

    def settle(self, claimed: Claimed, outcome: Outcome) -> Settled:
        [answer] = self.store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome)])
        return answer

    def begin(self, job_id: str, worker: str = DATABASE) -> Claimed:
        claimed = self.claim(job_id, worker)
        self.note(notes.Began(job_id, claimed.attempt, 7), by=worker)
        return claimed

    def end(self, claimed: Claimed, outcome: Outcome | None = None) -> None:
        if outcome is None:  # code that fails does not come to its last line
            self.note(notes.Ended(claimed.job_id, claimed.attempt, 7))
        assert self.settle(claimed, outcome or Succeeded()).ok

    def run(self, job_id: str, worker: str = DATABASE) -> None:
        self.end(self.begin(job_id, worker))

    def give(self, job_id: str) -> Claimed:
        """To a program that speaks the contract."""
        claimed = self.claim(job_id, CONTRACT)
        self.note(notes.Claimed(job_id, claimed.attempt, token_digest(claimed.lease_token), CONTRACT), by=CONTRACT)
        return claimed

    def report(self, claimed: Claimed, verb: str, outcome: Outcome) -> Settled:
        answer = self.settle(claimed, outcome)
        self.note(said(claimed, verb, answer.ok, None if answer.reason is None else str(answer.reason)), by=CONTRACT)
        return answer

    def lose_lease(self) -> None:
        """Let a lease run out, under a reaper that was never away."""
        for _ in range(4):
            self.store.reap("reaper", period=0.0, lease_seconds=LEASE_SECONDS, heartbeat_seconds=LEASE_SECONDS / 3)
            self.clock.move(LEASE_SECONDS / 3 + 0.1)
        self.store.reap("reaper", period=0.0, lease_seconds=LEASE_SECONDS, heartbeat_seconds=LEASE_SECONDS / 3)

    def operate(self, verb: str, job_id: str) -> None:
        [answer] = self.store.cancel([job_id]) if verb == "cancel" else self.store.requeue([job_id])
        self.note(notes.Operated(job_id, verb, answer.ok, None if answer.state is None else str(answer.state)))

    def fire(self) -> None:
        for tick in self.store.fire_schedules(DATABASE, lease_seconds=LEASE_SECONDS).ticks:
            if tick.job_id is not None:
                self.run(tick.job_id)

    def sql(self, statement: str, **parameters: Any) -> int:
        """Behind the guards' back. How many rows it changed."""
        with guards_off(self.store.database.engine) as connection:
            return connection.execute(text(statement), parameters).rowcount

    def job(self, task: str) -> str:
        """The first of that task."""
        return next(job_id for name, job_id in self.jobs.items() if name.startswith(f"{task} "))

    def judge(self, expected: Expectations = EXPECTED, strikes: Sequence[Strike] = ()) -> Judged:
        return judge(self.url, self.notes_folder, expected, strikes)

    def broken(self, expected: Expectations = EXPECTED, strikes: Sequence[Strike] = ()) -> Broken:
        """The one rule that is."""
        broken = self.judge(expected, strikes).broken
        assert len(broken) == 1, broken
        return broken[0]


def said(claimed: Claimed, verb: str, ok: bool, reason: str | None = None) -> notes.Reported:
    return notes.Reported(claimed.job_id, claimed.attempt, token_digest(claimed.lease_token), verb, ok, reason)


@contextmanager
def opened(folder: Path, now: datetime = BEGAN, jobs: dict[str, str] | None = None) -> Iterator[Run]:
    clock = FileClock(now)
    url = f"sqlite:///{folder}/jobs.db"
    with _closed(Run(url, folder, clock, SqlStore(open_sqlite(url, clock=clock)), dict(jobs or {}))) as run:
        yield run


@contextmanager
def opened_on_postgres(folder: Path, url: str) -> Iterator[Run]:
    """An empty database."""
    (folder / "notes").mkdir(parents=True)
    store = SqlStore(open_postgres(url))
    upgrade(store.database.engine)
    with _closed(Run(url, folder, ServerClock(store.database.engine), store)) as run:
        yield run


@contextmanager
def _closed(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.store.close()
        for notebook in run.notebooks.values():
            notebook.close()


@dataclass(frozen=True, slots=True)
class Healthy:
    """A run to make copies of."""

    folder: Path
    ended: datetime
    jobs: dict[str, str]

    @contextmanager
    def copied(self, folder: Path) -> Iterator[Run]:
        shutil.copytree(self.folder, folder)
        with opened(folder, self.ended, self.jobs) as run:
            yield run


def make_healthy(folder: Path) -> Healthy:
    (folder / "notes").mkdir(parents=True)
    with opened(folder) as run:
        upgrade(run.store.database.engine)
        run_everything(run)
        return Healthy(folder, run.clock.now, run.jobs)


def run_everything(run: Run) -> None:
    _run_ordinary(run)
    _run_troubled(run)
    _run_over_the_contract(run)
    _run_operated(run)
    _run_limited(run)
    _run_scheduled(run)
    _run_special(run)


def _run_ordinary(run: Run) -> None:
    for worker in (DATABASE, HTTP, REDIS, RQ):
        run.run(run.enqueue("add"), worker)
    run.note(notes.Intended([str(uuid.uuid4())], "add"))  # and then the client was killed


def _run_troubled(run: Run) -> None:
    flaky = run.enqueue("flaky")
    run.end(run.begin(flaky), BROKEN)
    run.run(flaky)
    lost = run.enqueue("add")
    run.begin(lost)
    run.lose_lease()
    run.run(lost)
    given_back = run.enqueue("add")
    run.settle(run.begin(given_back), Released("drain"))
    run.run(given_back, HTTP)
    poison = run.enqueue("poison", max_attempts=10)
    for _ in range(3):
        run.settle(run.begin(poison), KILLED)
        run.clock.move(5)
    run.settle(run.claim(run.insert_undecodable()), INVALID)


def _run_over_the_contract(run: Run) -> None:
    run.report(run.give(run.enqueue("contract")), "complete", Succeeded())
    twice = run.give(run.enqueue("contract"))
    run.report(twice, "fail", BROKEN)
    run.report(twice, "fail", BROKEN)
    assert run.report(twice, "complete", Succeeded()).reason == "conflicting_report"
    run.report(run.give(twice.job_id), "complete", Succeeded())
    zombie = run.give(run.enqueue("contract"))
    run.lose_lease()
    assert run.report(zombie, "complete", Succeeded()).reason == "lease_lost"
    run.report(run.give(zombie.job_id), "release", Released())
    run.run(zombie.job_id)


def _run_operated(run: Run) -> None:
    run.operate("cancel", run.enqueue("add"))
    running = run.begin(run.enqueue("add"))
    run.operate("cancel", running.job_id)
    run.settle(running, Released("cancelled"))
    hopeless = run.enqueue("hopeless")
    run.end(run.begin(hopeless), HOPELESS)
    run.operate("requeue", hopeless)
    run.run(hopeless)
    run.operate("cancel", hopeless)  # too late: said so


def _run_limited(run: Run) -> None:
    run.store.set_source("shop", max_concurrent=2, rate_limit_per_minute=60, burst=1)
    run.store.limit_queue("narrow", 1)
    first, second, third = (run.enqueue("fetch", source="shop") for _ in range(3))
    inside = [run.begin(first), run.begin(second)]
    run.clock.move(1.1)
    assert run.store.claim_job(DATABASE, third) is None, "two are the limit"
    for claimed in inside:
        run.end(claimed)
    run.run(third)
    for _ in range(2):
        run.run(run.enqueue("add", queue="narrow"))


def _run_scheduled(run: Run) -> None:
    run.store.add_schedule(Declaration(name="every-ten", task="tick", every_seconds=10.0))
    for seconds in (10, 10, 35, 10):  # the third time nobody was there for a while
        run.clock.move(seconds)
        run.fire()


def _run_special(run: Run) -> None:
    told = run.enqueue("add", webhook="https://example.org/told")
    run.run(told)
    run.settle(run.claim(run.enqueue("command")), Succeeded())
    run.settle(run.begin(run.enqueue("transfer")), Succeeded())
    run.run(run.store.replay(told).id)
    pruned = run.enqueue("flaky")
    run.run(pruned)
    with run.store.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM holdfast_jobs WHERE id = :id"), {"id": pruned})
