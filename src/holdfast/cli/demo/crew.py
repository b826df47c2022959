"""A small worker in a thread: it claims in batches, heartbeats all it holds in one call, settles in one call.

The real worker keeps the process that heartbeats apart from user code; here nothing of the user's runs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from holdfast.cli.demo.stage import PATIENCE_SECONDS
from holdfast.domain.answers import Beat, Settled, Status
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import TERMINAL
from holdfast.domain.outcome import Cancelled, Outcome, Report

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

BATCH = 10
IDLE_SECONDS = 0.02
BEAT_SECONDS = 0.05

# What a job's code would do: its outcome, or None to go on until somebody cancels it.
Perform = Callable[[Claimed], Outcome | None]


class Ledger:
    """What the workers have settled so far, for those who wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._settled: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._held: dict[str, str] = {}
        self._left = False

    def settle(self, answers: Sequence[Settled]) -> None:
        with self._changed:
            self._settled.update(answer.event for answer in answers if answer.ok and answer.event)
            self._ended.update(answer.job_id for answer in answers if answer.ok and answer.state in TERMINAL)
            self._changed.notify_all()

    def hold(self, job_id: str, worker: str) -> None:
        with self._changed:
            self._held[job_id] = worker
            self._changed.notify_all()

    def leave(self) -> None:
        """A worker has stopped: whoever waits for its work need not wait on."""
        with self._changed:
            self._left = True
            self._changed.notify_all()

    def wait_for_ends(self, count: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._left or len(self._ended) >= count, PATIENCE_SECONDS)
            return len(self._ended) >= count

    def wait_for_holder(self, job_id: str) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._left or job_id in self._held, PATIENCE_SECONDS)
            return self._held.get(job_id)

    def settled(self) -> Counter[str]:
        with self._changed:
            return Counter(self._settled)


class Crew:
    """Workers that run until the block is left; an error in one of them is raised there."""

    def __init__(self, store: SqlStore, queue: str, names: Sequence[str], perform: Perform) -> None:
        self.ledger = Ledger()
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(len(names))
        self._workers = [_Worker(store, queue, name, perform, self.ledger, self._stop) for name in names]

    def __enter__(self) -> Crew:
        self._runs = [self._threads.submit(worker.run) for worker in self._workers]
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._threads.shutdown()
        for run in self._runs:
            run.result()


class _Worker:
    def __init__(
        self, store: SqlStore, queue: str, name: str, perform: Perform, ledger: Ledger, stop: threading.Event
    ) -> None:
        self._store = store
        self._queue = queue
        self._name = name
        self._perform = perform
        self._ledger = ledger
        self._stop = stop

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        finally:
            self._ledger.leave()

    def _step(self) -> None:
        jobs = self._store.claim(self._name, limit=BATCH, queues=[self._queue])
        if jobs:
            self._work(jobs)
        else:
            self._stop.wait(IDLE_SECONDS)

    def _work(self, jobs: Sequence[Claimed]) -> None:
        self._store.heartbeat([self._beat(job) for job in jobs])
        outcomes = [(job, self._perform(job)) for job in jobs]
        self._settle([self._report(job, outcome) for job, outcome in outcomes if outcome is not None])
        for job, outcome in outcomes:
            if outcome is None:
                self._run_until_cancelled(job)

    def _run_until_cancelled(self, job: Claimed) -> None:
        self._ledger.hold(job.job_id, self._name)
        while not self._stop.wait(BEAT_SECONDS):
            if self._store.heartbeat([self._beat(job)])[0].cancel:
                self._settle([self._report(job, Cancelled("asked to stop"))])
                return

    def _settle(self, reports: Sequence[Report]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while reports and time.monotonic() < deadline:
            answers = self._store.settle(reports)
            self._ledger.settle(answers)
            # Somebody had the row locked; the lease is still ours, so say it again.
            pairs = zip(reports, answers, strict=True)
            reports = [report for report, answer in pairs if answer.status is Status.BUSY]

    def _beat(self, job: Claimed) -> Beat:
        return Beat(job.job_id, job.attempt, job.lease_token, self._name)

    def _report(self, job: Claimed, outcome: Outcome) -> Report:
        return Report(job.job_id, job.attempt, job.lease_token, outcome, self._name)
