"""The n-th step of whoever is on the way: counted, and at one of them something happens.

A step is whatever leaves the process: a statement on SQLite, a round trip to Postgres, Redis or a control plane. It
fails *before* it took effect (it never arrived) or *after* (it was done, and the answer is lost). A fault that lasts
makes every later step fail as well, until somebody puts an end to it: what cleans up after the first failure then has
to do without the other side, too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Strike:
    """Where it is to happen."""

    step: int
    moment: Moment
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.moment} step {self.step}{', and from then on' if self.lasts else ''}"


class Fault:
    """Counts while it is armed. Steps may be taken in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strike: Strike | None = None
        self._armed = False
        self.steps = 0

    def arm(self, strike: Strike | None) -> None:
        """Count from one; None only counts."""
        with self._lock:
            self._armed, self._strike, self.steps = True, strike, 0

    def disarm(self) -> bool:
        """Whether it has struck."""
        with self._lock:
            self._armed = False
            return self._strike is not None and self.steps >= self._strike.step

    def step(self) -> Moment | None:
        """One more is taken: when it is to fail, if it is."""
        with self._lock:
            if not self._armed:
                return None
            self.steps += 1
            if self._strike is None:
                return None
            if self.steps == self._strike.step:
                return self._strike.moment
            return Moment.BEFORE if self._strike.lasts and self.steps > self._strike.step else None
