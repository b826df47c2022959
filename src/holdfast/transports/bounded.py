"""A call that nothing depends on, and whose caller waits for it for a bounded time, whatever hangs.

It runs in a thread of its own, because no time-out of a client library covers everything (the look-up of a host name,
an answer that comes a byte at a time). After a failure nobody tries for a while: a Redis that is away costs one caller
a quarter of a second every few seconds, and the others nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Argument = TypeVar("Argument")


class Bounded(Generic[Argument]):
    def __init__(
        self,
        call: Callable[[Argument], object],
        failed: Callable[[str], None],
        *,
        seconds: float = 0.25,
        pause_seconds: float = 5.0,
    ) -> None:
        self._call = call
        self._failed = failed
        self._seconds = seconds
        self._pause = pause_seconds
        self._not_before = 0.0

    def __call__(self, argument: Argument) -> None:
        """Never raises; `failed` is told why nothing may have come of it."""
        if time.monotonic() < self._not_before:
            return
        outcome: list[str | None] = []
        done = threading.Event()

        def work() -> None:
            try:
                self._call(argument)
                outcome.append(None)
            except Exception as error:
                outcome.append(f"{type(error).__name__}: {error}")
            done.set()

        threading.Thread(target=work, name="holdfast-bounded", daemon=True).start()
        problem = outcome[0] if done.wait(self._seconds) else f"no answer within {self._seconds:g} s"
        if problem is not None:
            self._not_before = time.monotonic() + self._pause
            self._failed(problem)
