"""How long tasks take, so that quick ones can be claimed ahead.

A task is quick when its jobs average under 10 ms. Only then is it worth to hold more leases than there are slots: the
next jobs lie ready in the runner while the store is asked for more. The price is that a worker which is killed has
those leases reaped with the others, so their number is bounded.
"""

from __future__ import annotations

QUICK_MS = 10.0
WORTH_MS = 100.0  # this much work is held ready for each slot
MOST_PER_SLOT = 250
MOST_PER_RUNNER = 250
MOST_UNTOLD = 250  # more, as long as so many have ended and the store has not heard of them yet
_WEIGHT = 0.1
_MOST_TIMES = 4.0
_LEAST_MS = 0.1


class Pace:
    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def note(self, task: str, duration_ms: float) -> None:
        """A single job that took somewhat longer says little: its process may have waited for a core. Several are
        heard, and one that was really slow."""
        before = self._average.get(task)
        if before is None:
            self._average[task] = duration_ms
            return
        usual = _MOST_TIMES * max(before, _LEAST_MS)
        told = duration_ms if duration_ms > WORTH_MS else min(duration_ms, usual)
        self._average[task] = before + (told - before) * _WEIGHT

    def forget(self, task: str) -> None:
        """A task whose runner died is not quick, whatever it was before."""
        self._average[task] = QUICK_MS

    def quick(self, tasks: list[str]) -> list[str]:
        return [task for task in tasks if self._average.get(task, QUICK_MS) < QUICK_MS]

    def ahead(self, tasks: list[str], slots: int) -> int:
        """How many jobs of these quick tasks a runner may hold beyond what its slots run."""
        return min(MOST_PER_RUNNER, slots * self.ahead_per_slot(tasks))

    def ahead_per_slot(self, tasks: list[str]) -> int:
        if not tasks:
            return 0
        slowest = max(self._average[task] for task in tasks)
        return min(MOST_PER_SLOT, int(WORTH_MS / max(slowest, _LEAST_MS)))
