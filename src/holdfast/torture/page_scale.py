"""The scales of the page's drawings: seconds of a run across, counts upward.

Places across are in percent of the width, so that text keeps its size on any screen; curves, which cannot be, have a
width of `WIDE` and are stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.torture.results import Result, Second

WIDE = 1_000
MOST_BINS = 240
MOST_TICKS = 10
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Across:
    seconds: float

    def share(self, at: float) -> float:
        return min(max(at / self.seconds, 0.0), 1.0)

    def place(self, at: float) -> str:
        return percent(self.share(at))

    def ticks(self) -> Iterator[int]:
        step = _step(self.seconds, MOST_TICKS)
        return iter(range(0, math.ceil(self.seconds), step))


@dataclass(frozen=True, slots=True)
class Bin:
    """Some seconds that follow each other, as one: rates a second, and what there was on the average."""

    at: int
    seconds: int
    accepted: float
    claimed: float
    ended: float
    lost: int
    running: float
    waiting: float


def percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def across(result: Result) -> Across:
    """From the beginning to the last thing that happened."""
    ends = [1.0, result.seconds, result.seconds + (result.drained_seconds or 0.0)]
    ends += [second.at + 1.0 for second in result.timeline]
    ends += [strike.until for strike in result.strikes]
    ends += [life.ended for life in result.lives]
    return Across(max(ends))


def bins(timeline: Sequence[Second], seconds: float) -> tuple[Bin, ...]:
    """No more than can be told from each other on a screen."""
    size = _step(seconds, MOST_BINS)
    found: dict[int, list[Second]] = {}
    for second in timeline:
        found.setdefault(second.at // size, []).append(second)
    return tuple(_bin(number * size, size, found[number]) for number in sorted(found))


def _bin(at: int, size: int, inside: Sequence[Second]) -> Bin:
    count = len(inside)  # the last one has fewer seconds than the others
    return Bin(
        at=at,
        seconds=size,
        accepted=sum(second.accepted for second in inside) / count,
        claimed=sum(second.claimed for second in inside) / count,
        ended=sum(second.ended for second in inside) / count,
        lost=sum(second.lost for second in inside),
        running=sum(second.running for second in inside) / count,
        waiting=sum(second.waiting for second in inside) / count,
    )


def _step(seconds: float, most: int) -> int:
    return next((step for step in _STEPS if seconds / step <= most), math.ceil(seconds / most))


def rounded_up(value: float) -> float:
    """The top of a scale: 1, 2, 2.5, 4, 5 or 8 times a power of ten, never less than one."""
    if value <= 1:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 2.5, 4, 5, 8, 10) if factor * power >= value)
