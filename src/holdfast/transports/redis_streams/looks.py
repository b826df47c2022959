"""When a claim that found no message looks into the database all the same.

Messages may be lost, late, or about other tasks; and jobs under a limit are not offered in messages at all. So every
few seconds each kind of asker looks for itself; and who found something looks again at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.forks import fork_safe

MOST_ASKERS = 10_000

Asker = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


def asker(queues: Sequence[str] | None, tasks: Sequence[str] | None) -> Asker:
    return None if queues is None else tuple(queues), None if tasks is None else tuple(sorted(tasks))


class Looks:
    def __init__(self, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every_seconds
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._next: dict[Asker, float] = {}

    def take_turn(self, asker: Asker) -> bool:
        """Whether this asker may look now. Of several at once, one."""
        with self._lock:
            now = self._clock()
            if now < self._next.get(asker, 0.0):
                return False
            if len(self._next) >= MOST_ASKERS:
                self._next.clear()
            self._next[asker] = now + self._every * random.uniform(0.75, 1.0)
            return True

    def look_in(self, asker: Asker, seconds: float) -> None:
        """There will be something then: look, if it is not time before."""
        with self._lock:
            self._next[asker] = min(self._next.get(asker, 0.0), self._clock() + seconds)

    def found_some(self, asker: Asker) -> None:
        with self._lock:
            self._next.pop(asker, None)
