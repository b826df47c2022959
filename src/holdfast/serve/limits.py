"""Token buckets, one for each who asks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_BUCKETS = 20_000


class Buckets:
    """`burst` at once, `per_second` on average. A rate of 0 or less is no limit.

    There are at most `most` buckets; beyond that the one that was used longest ago is given up. Whoever can come under
    that many names pays with each of them anew, and the memory stays what it is.
    """

    def __init__(
        self,
        per_second: float,
        burst: float,
        most: int = MOST_BUCKETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._most = most
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """0.0 and one token less; or, when there is none, in how many seconds there will be one."""
        if self._per_second <= 0:
            return 0.0
        level, now = self._level(name)
        if level < 1.0:
            return (1.0 - level) / self._per_second
        self._levels[name] = (level - 1.0, now)
        self._levels.move_to_end(name)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return 0.0

    def wait(self, name: str) -> float:
        """The same without taking one."""
        if self._per_second <= 0 or name not in self._levels:
            return 0.0
        level, _now = self._level(name)
        return 0.0 if level >= 1.0 else (1.0 - level) / self._per_second

    def _level(self, name: str) -> tuple[float, float]:
        now = self._clock()
        level, at = self._levels.get(name, (self._burst, now))
        return min(self._burst, level + (now - at) * self._per_second), now
