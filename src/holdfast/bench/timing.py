"""How often, how long, and when to stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from holdfast.bench.report import Latency

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
FEWEST = 5  # of anything that is measured, however little time there is


class Interrupted(Exception):
    """Somebody wants it to end. What was made is still to be removed."""


class Stop:
    """Looked at between two verbs: none is cut off in the middle, so that it is always known what there is to remove.
    A second signal ends everything at once."""

    def __init__(self) -> None:
        self._wanted = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._wanted.is_set()

    def check(self) -> None:
        if self.is_set:
            raise Interrupted

    def wait(self, seconds: float) -> None:
        self._wanted.wait(seconds)
        self.check()

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt(number)
        self._wanted.set()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        before: dict[int, Any] = {number: signal.signal(number, self._heard) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def repeated(seconds: float, stop: Stop, once: Callable[[], object]) -> list[float]:
    """How long each took, in seconds, for so long."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    while len(took) < FEWEST or time.perf_counter() < until:
        stop.check()
        began = time.perf_counter()
        once()
        took.append(time.perf_counter() - began)
    return took


def latency(took: Sequence[float]) -> Latency:
    return Latency(_milliseconds(quantile(took, 0.5)), _milliseconds(quantile(took, 0.99)), len(took))


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest rank: a value that was really seen."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
