"""What an attempt cost, as far as a process can tell one job's share from its neighbours'."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from time import perf_counter

_RSS_UNIT = 1024 if sys.platform == "darwin" else 1  # bytes on macOS, KiB elsewhere
_SHORT_SECONDS = 0.001


class CpuClock:
    """Of one thread that runs jobs one after the other: a system call, not made twice within what is rounded off."""

    __slots__ = ("_asked_at", "_clock", "_known")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked_at = -1.0
        self._known = 0.0

    def __call__(self, now: float) -> float:
        if not 0.0 <= now - self._asked_at < _SHORT_SECONDS:
            self._asked_at, self._known = now, self._clock()
        return self._known


class Meter:
    """`cpu_clock` is told what time it is. It is None where jobs share a thread: nobody knows which of them used it."""

    __slots__ = ("_cpu", "_cpu_clock", "_start")

    def __init__(self, cpu_clock: Callable[[float], float] | None) -> None:
        self._cpu_clock = cpu_clock
        self._start = perf_counter()
        self._cpu = 0.0 if cpu_clock is None else cpu_clock(self._start)

    def read(self) -> dict[str, float]:
        now = perf_counter()
        duration = now - self._start
        figures: dict[str, float] = {"duration_ms": duration * 1000}
        figures["max_rss_kb"] = _peak.kb(is_short=duration < _SHORT_SECONDS)
        if self._cpu_clock is not None:
            figures["cpu_ms"] = round((self._cpu_clock(now) - self._cpu) * 1000)
        return figures


class _Peak:
    """The most memory this process has ever used, not what a job added. Not asked again for every tiny job."""

    def __init__(self) -> None:
        self._known = 0

    def kb(self, *, is_short: bool) -> int:
        if not is_short or not self._known:
            self._known = getrusage(RUSAGE_SELF).ru_maxrss // _RSS_UNIT
        return self._known


_peak = _Peak()


def of_command(usage: resource.struct_rusage) -> dict[str, int]:
    """The program's own figures, with those of the children it waited for."""
    cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
    return {"cpu_ms": cpu_ms, "max_rss_kb": usage.ru_maxrss // _RSS_UNIT}
