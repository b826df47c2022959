"""The way out: what is queued is given back at once, what runs may finish within the grace, the rest is released.

stop signal           claim nothing more; give back what no runner has started; heartbeats and cancels go on
grace over            TERM to the runners that still work, KILL after a few seconds more
second stop signal    TERM and KILL at once
then                  every outcome and release is reported, and only then the worker ends

A deploy charges nothing, and nobody waits for a lease of ours to run out.
"""

from __future__ import annotations

from holdfast.periodic.part import NEVER
from holdfast.runners.pool import Pool
from holdfast.worker.runs import Runs

UNDELIVERED_SECONDS = 10.0


class Draining:
    def __init__(self, runs: Runs, pool: Pool, grace: float, term_grace: float) -> None:
        self._runs = runs
        self._pool = pool
        self._grace = grace
        self._term_grace = term_grace
        self._term_at = NEVER
        self._kill_at = NEVER
        self._give_up_at = NEVER
        self._left = 0
        self.begun = False
        self.gave_up = False

    def begin(self, now: float) -> None:
        self.begun = True
        self._runs.draining = True
        self._runs.give_back_queued()
        self._term_at = now + self._grace

    def hurry(self, now: float) -> None:
        self._term_at = now
        self._term_grace = 0.0

    def step(self, now: float, undelivered: int) -> bool:
        """True when there is nothing left to do."""
        if len(self._runs.book) == 0 and undelivered == 0:
            return True
        if now >= self._term_at:
            self._term_at = NEVER
            self._kill_at = now + self._term_grace
            self._runs.release_started("the worker stopped before it was done")
            for runner in self._pool:
                runner.terminate()
        if now >= self._kill_at:
            self._kill_at = NEVER
            for runner in self._pool:
                runner.kill("worker stops")
        return self._undeliverable(now)

    def _undeliverable(self, now: float) -> bool:
        """Nothing runs any more and the store does not take the last reports: the reaper will see to those jobs."""
        if any(not held.reported for held in self._runs.book):
            self._give_up_at = NEVER
            return False
        if self._give_up_at == NEVER or len(self._runs.book) < self._left:
            self._left = len(self._runs.book)
            self._give_up_at = now + UNDELIVERED_SECONDS
        self.gave_up = now >= self._give_up_at
        return self.gave_up

    def wake_at(self) -> float:
        return min(self._term_at, self._kill_at, self._give_up_at)
