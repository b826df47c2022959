"""What the records of jobs say: what was lost, what ran twice, how long after its enqueue each began."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("<qd")


@dataclass(frozen=True)
class Start:
    number: int
    at: float  # by the machine's monotonic clock, which all processes share


@dataclass(frozen=True)
class Verdict:
    """Of `expected` jobs: how many never began, and how many starts were too many."""

    lost: int
    doubled: int

    @property
    def once(self) -> bool:
        return self.lost == 0 and self.doubled == 0


@dataclass(frozen=True)
class Latency:
    count: int
    p50: float  # milliseconds
    p99: float
    most: float


def count(path: Path) -> int:
    return path.stat().st_size // RECORD.size if path.exists() else 0


def read(path: Path) -> list[Start]:
    data = path.read_bytes() if path.exists() else b""
    whole = data[: len(data) // RECORD.size * RECORD.size]  # a process killed over a write leaves a part at most
    return [Start(number, at) for number, at in RECORD.iter_unpack(whole)]


def judge(starts: Collection[Start], expected: Collection[int]) -> Verdict:
    """A start of a job that was never enqueued counts as doubled, too: something ran that should not have."""
    ran = {start.number for start in starts}
    wanted = set(expected)
    return Verdict(lost=len(wanted - ran), doubled=len(starts) - len(wanted & ran))


def latency(starts: Sequence[Start], began: Sequence[float]) -> Latency | None:
    """From just before each enqueue to the start of its job; a second start of the same job is none of it."""
    first: dict[int, float] = {}
    for start in starts:
        first[start.number] = min(start.at, first.get(start.number, start.at))
    waits = sorted((first[number] - at) * 1000 for number, at in enumerate(began) if number in first)
    if not waits:
        return None
    return Latency(len(waits), percentile(waits, 0.5), percentile(waits, 0.99), waits[-1])


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def restarts(starts: Sequence[Start], killed_at: float) -> tuple[set[int], dict[int, float]]:
    """Which jobs had begun when the process was killed, and after how many seconds each of them began again."""
    cut = {start.number for start in starts if start.at < killed_at}
    again: dict[int, float] = {}
    for start in starts:
        if start.number in cut and start.at >= killed_at:
            after = start.at - killed_at
            again[start.number] = min(after, again.get(start.number, after))
    return cut, again
