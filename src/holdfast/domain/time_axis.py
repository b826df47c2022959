"""A time axis in pieces: where something runs it is to scale, where nothing does a long wait is cut short.

Every place is a share of the width, from 0.0 to 1.0. A wait that would push everything else to the edge gets less room
than it lasted; its piece says `broken`, and a drawing shows that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

Piece = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the axis. A broken one is shorter than it lasted."""

    begin: datetime
    end: datetime
    start: float
    stop: float
    broken: bool


@dataclass(frozen=True, slots=True)
class Tick:
    at: datetime
    place: float


@dataclass(frozen=True, slots=True)
class Axis:
    stretches: tuple[Stretch, ...]

    @property
    def begin(self) -> datetime:
        return self.stretches[0].begin

    @property
    def end(self) -> datetime:
        return self.stretches[-1].end

    @property
    def breaks(self) -> tuple[Stretch, ...]:
        return tuple(stretch for stretch in self.stretches if stretch.broken)

    def place(self, moment: datetime) -> float:
        """Where a moment is; what is outside is at the edge."""
        index = bisect_right(self.stretches, moment, key=lambda stretch: stretch.begin) - 1
        stretch = self.stretches[max(index, 0)]
        length = stretch.end - stretch.begin
        share = min(max((moment - stretch.begin) / length, 0.0), 1.0) if length else 0.0
        return min(stretch.start + share * (stretch.stop - stretch.start), stretch.stop)

    def moment(self, place: float) -> datetime:
        """Which moment is there: `place` the other way round."""
        index = bisect_left(self.stretches, place, key=lambda stretch: stretch.stop)
        stretch = self.stretches[min(index, len(self.stretches) - 1)]
        width = stretch.stop - stretch.start
        share = (place - stretch.start) / width if width > 0 else 0.0
        return stretch.begin + min(max(share, 0.0), 1.0) * (stretch.end - stretch.begin)

    def ticks(self, gap: float) -> tuple[Tick, ...]:
        """Moments to write at the axis, no two closer than `gap`: its ends, both sides of each break, and between."""
        chosen: list[Tick] = []
        for tick in self._worth_a_tick():
            if all(abs(tick.place - other.place) >= gap for other in chosen):
                chosen.append(tick)
        return tuple(sorted(chosen, key=lambda tick: tick.place))

    def _worth_a_tick(self) -> Iterator[Tick]:
        yield Tick(self.begin, self.stretches[0].start)
        yield Tick(self.end, self.stretches[-1].stop)
        for stretch in self.breaks:
            yield Tick(stretch.end, stretch.stop)
            yield Tick(stretch.begin, stretch.start)
        for parts in (2, 4, 8, 16):
            for part in range(1, parts, 2):
                place = part / parts
                if not any(stretch.start < place < stretch.stop for stretch in self.breaks):
                    yield Tick(self.moment(place), place)


def axis_of(moments: Sequence[datetime], runs: Callable[[Piece], bool]) -> Axis:
    """Over all of the moments, which are in order and different; `runs` says whether something runs between two of
    them. What waits never takes more than twice the room of what runs."""
    pieces = list(pairwise(moments)) or [(moments[0], moments[0])]
    seconds = [(end - begin).total_seconds() for begin, end in pieces]
    idle = [not runs(piece) for piece in pieces]
    busy = sum(length for length, waits in zip(seconds, idle, strict=True) if not waits)
    most = busy / sum(idle) if busy > 0 and any(idle) else float("inf")
    broken = [waits and length > 2 * most for length, waits in zip(seconds, idle, strict=True)]
    drawn = [most if cut else length for length, cut in zip(seconds, broken, strict=True)]
    return Axis(tuple(_stretches(pieces, drawn, broken)))


def _stretches(pieces: list[Piece], drawn: list[float], broken: list[bool]) -> Iterator[Stretch]:
    """Pieces to scale that follow each other are one stretch."""
    total = sum(drawn) or 1.0
    place, index = 0.0, 0
    while index < len(pieces):
        last = index
        while not broken[index] and last + 1 < len(pieces) and not broken[last + 1]:
            last += 1
        stop = 1.0 if last + 1 == len(pieces) else min(place + sum(drawn[index : last + 1]) / total, 1.0)
        yield Stretch(pieces[index][0], pieces[last][1], place, stop, broken[index])
        place, index = stop, last + 1
