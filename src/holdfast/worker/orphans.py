"""Replace a runner that has adopted too many dead orphans.

A runner is a subreaper, so what its jobs leave behind becomes its child. It cannot wait for them: it would take exit
codes away from user code that waits for its own children. So they stay in the process table until the runner ends,
and then fall to the supervisor, which buries them.
"""

from __future__ import annotations

from holdfast.periodic.part import NEVER
from holdfast.runners.pool import Pool
from holdfast.runners.process_table import processes

LOOK_EVERY_SECONDS = 5.0
MOST = 20


class Orphans:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._look_at = 0.0
        self._seen = 0

    def step(self, now: float) -> None:
        if now < self._look_at or self._seen == self._finished():
            return
        self._look_at = now + LOOK_EVERY_SECONDS
        self._seen = self._finished()
        dead = [process.parent for process in processes() if process.is_zombie]
        for runner in self._pool:
            if dead.count(runner.pid) > MOST:
                runner.stop()

    def _finished(self) -> int:
        """An idle pool is not looked at."""
        return sum(runner.finished for runner in self._pool)

    def wake_at(self) -> float:
        return NEVER if self._seen == self._finished() else self._look_at
