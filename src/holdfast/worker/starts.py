"""Kill a runner that holds jobs and does not start them.

A healthy runner starts a job as soon as one of its slots is free, and returns queued jobs when the supervisor requests
them. No user code takes part in either. So a job that stays unstarted is in a runner that was stopped (SIGSTOP), whose
reader hangs, or in which a job blocks the event loop or holds the GIL. Its lease is renewed all the same, and no time
limit applies to a job that has not started.

Some job is always charged with a crash, or the fleet would hand over, kill and release forever:

- Nothing runs in the runner: the job at the head of its queue. It alone could have been started, and a payload that
  hangs the reader is poison of that job.
- Jobs run in it: those. Their code had the process to itself; the queued ones are bystanders.

Jobs that run may block their runner for a while, which is legal. Therefore such a runner is pinged first, and killed
only if its reader stays silent. A blocked event loop does not stop the reader: that runner is reported and left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.events import Events, StartOverdue
from holdfast.domain.outcome import Crashed
from holdfast.periodic.part import NEVER
from holdfast.runners.pool import Pool
from holdfast.runners.process import RunnerProcess
from holdfast.worker.leases import LeaseBook

CHECK_EVERY_SECONDS = 5.0
START_SECONDS = 60.0  # far beyond what swapping or a loaded machine takes: to start a job costs well under 1 ms
MAX_SHOWN = 4  # a worker has few runners, and its row must stay small
SILENT_SECONDS = 300.0  # a job may hold the GIL for several leases


@dataclass(slots=True)
class Overdue:
    """The head of a runner's queue, and the seconds for which it was seen waiting there."""

    lease_id: str
    finished: int
    waited: float = 0.0
    silent: float = 0.0  # since the ping that was not answered
    is_reported: bool = False


class StartWatch:
    def __init__(self, pool: Pool, book: LeaseBook, events: Events) -> None:
        self._pool = pool
        self._book = book
        self._events = events
        self._checked_at = 0.0
        self._waiting: dict[int, Overdue] = {}  # by pid

    def step(self, now: float) -> None:
        if now < self._checked_at + CHECK_EVERY_SECONDS:
            return
        # A pause of this process or of the whole machine is no fault of the runner: it counts as one period.
        passed = min(now - self._checked_at, 2 * CHECK_EVERY_SECONDS)
        self._checked_at = now
        found = {runner.pid: head for runner in self._pool if (head := self._head(runner, passed)) is not None}
        self._waiting = found
        for runner in self._pool:
            if (head := found.get(runner.pid)) is not None and head.waited >= START_SECONDS:
                self._judge(runner, head, passed)

    def wake_at(self) -> float:
        """The supervisor steps every second in any case, which is often enough."""
        return NEVER

    def overdue(self) -> dict[str, int]:
        """The jobs that wait for longer than they should, by job id, in seconds: for the row of this worker."""
        late = [head for head in self._waiting.values() if head.waited >= START_SECONDS][:MAX_SHOWN]
        return {held.job.job_id: round(head.waited) for head in late if (held := self._book.get(head.lease_id))}

    def _head(self, runner: RunnerProcess, passed: float) -> Overdue | None:
        """The job that should start next; time is added to it while it is the same and no job of the runner ends."""
        lease_id = next((name for name, started in runner.jobs.items() if not started), None)
        if lease_id is None or runner.killed is not None:
            return None
        known = self._waiting.get(runner.pid)
        if known is None or known.lease_id != lease_id or known.finished != runner.finished:
            return Overdue(lease_id, runner.finished)
        known.waited += passed
        return known

    def _judge(self, runner: RunnerProcess, head: Overdue, passed: float) -> None:
        running = [name for name, started in runner.jobs.items() if started]
        if not running:
            self._kill(runner, head, [head.lease_id])
        elif not runner.is_pinged:
            head.silent = 0.0
            runner.ping()
            self._report(runner, head, killed=False)
        else:
            head.silent += passed
            if head.silent >= SILENT_SECONDS:
                self._kill(runner, head, running)

    def _kill(self, runner: RunnerProcess, head: Overdue, charged: list[str]) -> None:
        crashed = Crashed(f"its runner had stopped: a job waited {head.waited:.0f} s there for its start", signal=9)
        for lease_id in charged:
            held = self._book.get(lease_id)
            if held is not None and held.ending is None:
                held.ending = crashed
        head.is_reported = False
        self._report(runner, head, killed=True)
        runner.kill("did not start a job")

    def _report(self, runner: RunnerProcess, head: Overdue, *, killed: bool) -> None:
        held = self._book.get(head.lease_id)
        if held is not None and not head.is_reported:
            head.is_reported = True
            job = held.job
            self._events.emit(StartOverdue(runner.pid, job.job_id, job.attempt, job.task, head.waited, killed))
