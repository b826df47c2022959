"""How much of the machine others used meanwhile, so that a disturbed measurement can be taken again."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

LIMIT_CORES = 0.25
T = TypeVar("T")


def _busy_seconds() -> float:
    ticks = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks[:8]) - idle - waiting) / float(os.sysconf("SC_CLK_TCK"))


class Foreign:
    """CPU seconds of everything that is neither this process, nor its ended children, nor the run's servers."""

    def __init__(self, servers: Iterable[int]) -> None:
        self._servers = list(servers)

    def seconds(self) -> float:
        return _busy_seconds() - self._own_seconds()

    def _own_seconds(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used) + sum(map(_tree_seconds, self._servers))


def _tree_seconds(pid: int) -> float:
    """Of a server and its children, the ended ones too: they are with the server, if it has waited for them."""
    total = 0.0
    with suppress(psutil.Error):
        server = psutil.Process(pid)
        times = server.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
        for child in server.children(recursive=True):
            with suppress(psutil.Error):
                total += sum(child.cpu_times()[:2])
    return total


def calmest(foreign: Foreign, measure: Callable[[], T], tries: int) -> tuple[T, float]:
    """What was measured, and how many cores others used; the calmest of `tries` if none was calm."""
    taken: list[tuple[float, T]] = []
    for _ in range(max(1, tries)):
        before, began = foreign.seconds(), time.monotonic()
        found = measure()
        cores = max(0.0, foreign.seconds() - before) / (time.monotonic() - began)
        taken.append((cores, found))
        if cores <= LIMIT_CORES:
            break
    cores, found = min(taken, key=lambda one: one[0])
    return found, round(cores, 2)
