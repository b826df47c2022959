"""When to ask a store again that did not answer: soon at first, then less often, never all workers at once."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.domain.events import Events, StoreBack, StoreFailed


class Retrying:
    """Full jitter: between nothing and a wait that doubles up to `longest`."""

    def __init__(
        self,
        what: str,
        events: Events,
        longest: float,
        first: float = 0.1,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._what = what
        self._events = events
        self._first = min(first, longest)
        self._longest = longest
        self._spread = spread
        self._failures = 0
        self._since = 0.0
        self.not_before = 0.0

    def failed(self, now: float, error: Exception) -> float:
        """The time of the next try."""
        if self._failures == 0:
            self._since = now
            self._events.emit(StoreFailed(self._what, str(error) or type(error).__name__))
        wait = min(self._longest, self._first * 2**self._failures)
        self._failures = min(self._failures + 1, 20)
        self.not_before = now + self._spread(wait / 4, wait)
        return self.not_before

    def worked(self, now: float) -> None:
        if self._failures:
            self._failures = 0
            self._events.emit(StoreBack(self._what, now - self._since))
        self.not_before = 0.0
