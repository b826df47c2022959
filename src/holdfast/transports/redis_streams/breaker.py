"""Whether Redis may be asked now. After a failure it is left alone for a while that doubles, drawn by lot; then one
caller tries, and the others still go without."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from holdfast.forks import fork_safe

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


class Breaker:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._failures = 0
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        """Redis failed last time; there may be somebody who tries again."""
        return self._failures > 0

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._not_before - self._clock()) if self._failures else 0.0

    def admits(self, try_seconds: float) -> bool:
        """True for everybody while all is well. After a failure, when the pause is over, for one caller, who has so
        long to find out."""
        if self._failures == 0:
            return True
        with self._lock:
            if self._clock() < self._not_before:
                return False
            self._not_before = self._clock() + try_seconds
            return True

    def worked(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        with self._lock:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
            self._failures += 1
            self._not_before = self._clock() + random.uniform(0.5, 1.0) * pause
