"""Kill a runner that uses more memory than it may. The kernel's own killer would come later and choose worse."""

from __future__ import annotations

from holdfast.domain.outcome import Crashed
from holdfast.periodic.part import NEVER
from holdfast.runners.pool import Pool
from holdfast.runners.process import RunnerProcess
from holdfast.worker.leases import LeaseBook

LOOK_EVERY_SECONDS = 0.2


class MemoryWatch:
    def __init__(self, pool: Pool, book: LeaseBook, limit: int | None) -> None:
        self._pool = pool
        self._book = book
        self._limit = limit
        self._look_at = 0.0

    def step(self, now: float) -> None:
        if self._limit is None or now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_SECONDS
        for runner in self._pool:
            used = runner.memory()
            if used > self._limit and runner.killed is None:
                self._kill(runner, used, self._limit)

    def _kill(self, runner: RunnerProcess, used: int, limit: int) -> None:
        """In a shared runner nobody knows whose memory it is: all that have started are charged."""
        message = f"out of memory: its process used {used >> 20} MiB, the limit is {limit >> 20} MiB"
        for lease_id, started in runner.jobs.items():
            held = self._book.get(lease_id)
            if started and held is not None and held.ending is None:
                held.ending = Crashed(message, signal=9)
        runner.kill("memory limit")

    def wake_at(self) -> float:
        busy = self._limit is not None and any(runner.jobs for runner in self._pool)
        return self._look_at if busy else NEVER
