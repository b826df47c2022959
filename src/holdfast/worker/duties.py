"""What any worker does for all of them, now and then: reap, announce its tasks, and keep its row for people to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.domain.answers import Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Events, Reaping
from holdfast.domain.job import Claimed
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Released, Report
from holdfast.domain.timing import Timing
from holdfast.domain.views import WorkerRow
from holdfast.ports import Store
from holdfast.worker.desk import Desk, Refusal
from holdfast.worker.part import NEVER
from holdfast.worker.retrying import Retrying

ANNOUNCE_EVERY_SECONDS = 60.0
ROW_EVERY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Round:
    """What is due together."""

    reap: bool
    tasks: tuple[TaskInfo, ...]
    row: WorkerRow | None


class Duties:
    def __init__(
        self,
        store: Callable[[], Store],
        worker: str,
        timing: Callable[[], Timing],
        events: Events,
        ring: Callable[[], None],
        tasks: Callable[[], list[TaskInfo]],
        row: Callable[[], WorkerRow],
        retrying: Retrying,
    ) -> None:
        self._store = store
        self._worker = worker
        self._timing = timing
        self._events = events
        self._tasks = tasks
        self._row = row
        self._retrying = retrying
        self._reap_at = self._announce_at = self._row_at = 0.0
        self._announced: list[TaskInfo] = []
        self._desk: Desk[_Round, int] = Desk("duties", self._serve, ring)
        self._lost: dict[str, Claimed] = {}  # the desk's own: given back once the store has taken them
        self.error: Exception | None = None

    @property
    def pending(self) -> bool:
        return self._desk.busy

    def due(self, now: float) -> bool:
        changed = self._tasks() != self._announced
        return changed or now >= min(self._reap_at, self._announce_at, self._row_at)

    def step(self, now: float) -> None:
        """Take the answer of the last round; begin another if one is due."""
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            # What is wrong with a duty alone is told, and must not keep the worker from its jobs.
            self.error = answer.error if isinstance(answer.error, StoreUnavailable) else None
            self._reap_at = self._announce_at = self._row_at = self._retrying.failed(now, answer.error)
        elif answer is not None:
            self.error = None
            self._retrying.worked(now)
            if answer:
                self._events.emit(Reaping(answer))
        if not self._desk.busy and now >= self._retrying.not_before and self.due(now):
            self._desk.ask(self._round(now))

    def _round(self, now: float) -> _Round:
        reap = now >= self._reap_at
        if reap:
            self._reap_at = now + self._timing().reap_period
        tasks: tuple[TaskInfo, ...] = ()
        if now >= self._announce_at or self._tasks() != self._announced:
            self._announced = self._tasks()
            tasks = tuple(self._announced)
            self._announce_at = now + ANNOUNCE_EVERY_SECONDS
        row = None
        if now >= self._row_at:
            row = self._row()
            self._row_at = now + ROW_EVERY_SECONDS
        return _Round(reap, tasks, row)

    def _serve(self, round_: _Round) -> int:
        store = self._store()
        self._give_back(store)
        if round_.tasks:
            store.announce(round_.tasks)
            store.forget_workers()
        if round_.row is not None:
            store.keep_worker(round_.row)
        if not round_.reap:
            return 0
        timing = self._timing()
        reaped = store.reap(
            self._worker, period=timing.reap_period, lease_seconds=timing.lease, heartbeat_seconds=timing.heartbeat
        )
        return len(reaped.settled)

    def _give_back(self, store: Store) -> None:
        """Jobs of a claim whose answer was lost: nobody runs them, and nobody should wait for their leases to end."""
        self._lost |= {job.attempt_id: job for job in store.recover(self._worker)}
        if self._lost:
            released = Released("the answer to the claim was lost")
            jobs = list(self._lost.values())
            reports = [Report(job.job_id, job.attempt, job.lease_token, released, self._worker) for job in jobs]
            answers = zip(jobs, store.settle(reports), strict=True)
            self._lost = {job.attempt_id: job for job, answer in answers if answer.status is Status.BUSY}

    def wake_at(self) -> float:
        if self._desk.busy:
            return NEVER
        return max(self._retrying.not_before, min(self._reap_at, self._announce_at, self._row_at))

    def run_soon(self) -> None:
        """Something went wrong with the store: look after what may have been lost."""
        self._reap_at = 0.0

    def show_soon(self) -> None:
        """The state changed in a way that people should see now."""
        self._row_at = 0.0

    def say_goodbye(self, seconds: float) -> None:
        """The last row. Nothing depends on it, so it gets one short try; who never wrote a first one is silent."""
        if not self._announced:
            return
        self._desk.wait(seconds)
        if not self._desk.busy:
            self._desk.ask(_Round(False, (), self._row()))
            self._desk.wait(seconds)

    def close(self) -> None:
        self._desk.close()
