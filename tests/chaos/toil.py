"""Work for processes that are about to be killed, or to lose their database.

What the store has acknowledged is written to a file before anything else is done; what has been written outlives the
process. A line `enqueued ID` is a job, a line `ended ID ATTEMPT EVENT` an outcome.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from holdfast.domain.answers import Beat
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import assert_verified, query
from tests.chaos.diary import Worker
from tests.servers.waiting import DEADLINE_SECONDS

AT_ONCE = RetryPolicy(kind="fixed", base=0.0, jitter=0.0)
SETBACKS: tuple[Outcome, ...] = (Failed(JobError("flaky", "try again")), Released())
PAUSE_SECONDS = 0.05

Answer = TypeVar("Answer")


class Toiler:
    """Enqueues, claims, keeps its leases and reports; asks again when the store did not answer."""

    def __init__(self, store: SqlStore, name: str, file: Path, lease_seconds: float) -> None:
        self.worker = Worker(store, name)
        self._store = store
        self._chance = random.Random(name)
        self._lease_seconds = lease_seconds
        self._file = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def take_a_turn(self) -> None:
        self.enqueue(self._chance.randint(1, 5))
        leases = self.insist(lambda: self.worker.claim(self._chance.randint(1, 8)))
        self.insist(lambda: self._store.heartbeat([Beat(it.job_id, it.attempt, it.lease_token) for it in leases]))
        self.settle(leases)

    def enqueue(self, count: int) -> None:
        """Under ids of our own, so that asking again does not make the jobs again."""
        jobs = [self._job(str(uuid.uuid4())) for _ in range(count)]
        answers = self.insist(lambda: self._store.enqueue_many(jobs))
        assert [answer.id for answer in answers] == [job.id for job in jobs]
        self._acknowledge(f"enqueued {answer.id}" for answer in answers)

    def settle(self, leases: Sequence[Claimed]) -> None:
        reports = [Report(it.job_id, it.attempt, it.lease_token, self._outcome(it), "toiler") for it in leases]
        answers = self.insist(lambda: self.worker.report(reports))
        self._acknowledge(f"ended {it.job_id} {it.attempt} {it.event}" for it in answers if it.ok)

    def insist(self, ask: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            try:
                return ask()
            except StoreUnavailable:
                self.worker.diary.outages += 1
                time.sleep(self._chance.uniform(0.0, PAUSE_SECONDS))
        raise TimeoutError("the store stayed away")

    def _job(self, job_id: str) -> NewJob:
        return NewJob(
            task="toil",
            id=job_id,
            lease_seconds=self._lease_seconds,
            retry=AT_ONCE,
            max_attempts=1_000,
            max_crashes=1_000,
        )

    def _outcome(self, lease: Claimed) -> Outcome:
        if lease.attempt > 3 or self._chance.random() < 0.7:
            return Succeeded()
        return self._chance.choice(SETBACKS)

    def _acknowledge(self, lines: Iterable[str]) -> None:
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


class Ended(NamedTuple):
    job_id: str
    attempt: int
    event: str


class Acknowledged(NamedTuple):
    """What the store has said it has."""

    enqueued: list[str]
    ended: list[Ended]


def acknowledged_in(files: Iterable[Path]) -> Acknowledged:
    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    return Acknowledged(
        [words[1] for words in lines if words[0] == "enqueued"],
        [Ended(words[1], int(words[2]), words[3]) for words in lines if words[0] == "ended"],
    )


def assert_nothing_lost(url: str, acknowledged: Acknowledged) -> None:
    """Every acknowledged job is there, every acknowledged outcome is in the log, and the log is a sound one."""
    jobs = {row[0] for row in query(url, "SELECT CAST(id AS text) FROM holdfast_jobs")}
    assert set(acknowledged.enqueued) <= jobs
    endings = query(
        url,
        """SELECT CAST(job_id AS text), attempt, event FROM holdfast_events
           WHERE from_state = 'running' AND to_state <> 'running'""",
    )
    assert set(acknowledged.ended) <= {Ended(*row) for row in endings}
    assert_verified(url)


def finish(store: SqlStore) -> None:
    """Take over from those who are gone, and do the rest of the work: every job ends, and each in one success."""
    store.reap("successor", period=0, lease_seconds=3600, heartbeat_seconds=0)
    worker = Worker(store, "successor")
    while batch := worker.claim(500):
        worker.settle((job, Succeeded()) for job in batch)
    assert set(store.counts()) == {"succeeded"}
