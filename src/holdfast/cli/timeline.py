"""A job's timeline on a grid of characters: `domain/timeline.py` says what is where, here it gets columns.

Every attempt has at least two columns, its bar and the letter of its end, however short it was; so the columns are not
exactly to scale where much happens at once, but nothing is drawn over, and what is later is never further left. Colours
only repeat what the letters say.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.ages import span
from holdfast.domain.jsonable import iso
from holdfast.domain.timeline import LETTERS, Lane, Mark, Segment, Timeline, lay_out, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from holdfast.domain.job import Attempt, AuditEvent
    from holdfast.domain.views import Refusal

WIDTH_WITHOUT_TERMINAL = 100
LEAST_WIDTH = 20  # of the grid; a terminal that is narrower folds it
MOST_LANES = 12
_LONGEST_NAME = 24
_LEAST_COLUMNS = 2
_TICK_COLUMNS = 10
_GAP = 2  # between the names and the grid
JOB_LANE = "job"

COLOURS = {
    "succeeded": "green",
    "retry_scheduled": "yellow",
    "crashed": "red",
    "lease_lost": "magenta",
    "failed": "red",
    "released": "blue",
    "snoozed": "blue",
    "cancelled": "dim",
    "cancel_requested": "yellow",
    "refused": "magenta",
}


@dataclass(frozen=True, slots=True)
class Characters:
    bar: str
    open_end: str
    wait: str
    cut: str
    ellipsis: str


DRAWN = Characters("━", "▶", "·", "/", "…")
PLAIN = Characters("=", ">", ".", "/", "~")  # for a terminal that has no code for the others


def print_timeline(
    events: Sequence[AuditEvent], attempts: Sequence[Attempt], refusals: Sequence[Refusal], now: datetime
) -> None:
    console = output.console()
    width = console.width if console.is_terminal else WIDTH_WITHOUT_TERMINAL
    characters = DRAWN if output.draws_unicode(console) else PLAIN
    for line in draw(events, attempts, refusals, now, width, characters):
        console.print(line, soft_wrap=True, highlight=False, emoji=False)


def draw(
    events: Sequence[AuditEvent],
    attempts: Sequence[Attempt],
    refusals: Sequence[Refusal],
    now: datetime,
    width: int,
    characters: Characters = DRAWN,
) -> list[Text]:
    """The lines of it, none wider than `width`; none at all of a job without a history."""
    most = max(len(JOB_LANE), min(_LONGEST_NAME, width // 4))
    bars = max(width - most - _GAP, LEAST_WIDTH) // (_LEAST_COLUMNS + 1)
    timeline = lay_out(events, attempts, refusals, now, most_attempts=bars)
    if timeline is None:
        return []
    names = min(most, max(_plain(name).cell_len for name in [JOB_LANE, *map(_name, timeline.lanes)]))
    return _Drawing(timeline, names, max(width - names - _GAP, LEAST_WIDTH), characters).lines()


class Grid:
    """Where a place is among so many columns: as the attempts' bars allow it, and to scale between them."""

    def __init__(self, segments: Sequence[Segment], columns: int) -> None:
        self.columns = columns
        self.bars = _bars(segments, columns)
        points = [(0.0, 0.0)]
        for segment, (first, end) in zip(segments, self.bars, strict=True):
            points += [(segment.start, float(first)), (segment.stop, float(end))]
        self._points = [*points, (1.0, float(columns))]

    def column(self, place: float) -> int:
        index = min(bisect_right(self._points, (place, float("inf"))), len(self._points) - 1)
        (left, first), (right, end) = self._points[max(index - 1, 0)], self._points[index]
        share = (place - left) / (right - left) if right > left else 0.0
        return min(int(first + share * (end - first)), self.columns - 1)


def _bars(segments: Sequence[Segment], columns: int) -> list[tuple[int, int]]:
    """The first column of each bar and the one behind its last: from left to right, and then pushed back from the
    edge."""
    ends = [0]
    bars: list[tuple[int, int]] = []
    for segment in segments:
        first = max(int(segment.start * columns), ends[-1])
        ends.append(max(round(segment.stop * columns), first + _LEAST_COLUMNS))
        bars.append((first, ends[-1]))
    edge = columns
    for index in range(len(bars) - 1, -1, -1):
        first, end = bars[index]
        end = min(end, edge)
        edge = min(first, end - _LEAST_COLUMNS)
        bars[index] = (edge, end)
    return bars


class _Drawing:
    def __init__(self, timeline: Timeline, names: int, room: int, characters: Characters) -> None:
        self._timeline = timeline
        self._names = names
        self._room = room
        self._characters = characters
        self._grid = Grid(timeline.segments, room)
        bars = zip(timeline.segments, self._grid.bars, strict=True)
        self._bars = {(segment.worker, segment.attempt): bar for segment, bar in bars}

    def lines(self) -> list[Text]:
        lanes = self._timeline.lanes
        shown = lanes[-MOST_LANES:]
        lines = [self._title(), self._job_lane()]
        if len(lanes) > len(shown):
            lines.append(_plain(f"{self._characters.ellipsis} {len(lanes) - len(shown)} workers before these", "dim"))
        lines += [self._lane(lane) for lane in shown]
        return [*lines, self._axis(), *self._legend()]

    def _title(self) -> Text:
        axis, count = self._timeline.axis, len(self._timeline.segments)
        left_out = self._timeline.left_out
        said = f"{count} attempt{'' if count == 1 else 's'}"
        said = f"the last {count} of {count + left_out} attempts" if left_out else said
        lasted = span((axis.end - axis.begin).total_seconds())
        line = _plain("timeline", "bold")
        line.append(f"  {said} in {lasted}, from {iso(axis.begin)[:19]}Z", "dim")
        line.truncate(self._names + _GAP + self._room, overflow="crop")
        return line

    def _job_lane(self) -> Text:
        """What happened to it while nobody held it: waits, with breaks where they are cut short, and marks."""
        cells = _Cells(self._room)
        for wait in self._timeline.waits:
            if not wait.over:
                last = self._grid.column(wait.stop) + (wait.stop == 1.0)
                cells.fill(self._grid.column(wait.start), last, self._characters.wait, "dim")
        self._breaks(cells)
        for mark in self._timeline.marks:
            cells.mark(self._grid.column(mark.place), *_sign(mark.kind))
        return self._named(JOB_LANE, cells)

    def _lane(self, lane: Lane) -> Text:
        cells = _Cells(self._room)
        for segment in lane.segments:
            self._bar(cells, segment)
        for mark in lane.marks:
            if mark.kind in ("refused", "cancel_requested"):
                cells.mark(self._within(mark, lane), *_sign(mark.kind))
        return self._named(_name(lane), cells)

    def _bar(self, cells: _Cells, segment: Segment) -> None:
        """Its number, a line, and how it ended: `1━━━━S`. One that runs is open: `2━━━▶`."""
        first, end = self._bars[segment.worker, segment.attempt]
        colour = COLOURS.get(segment.outcome or "", "cyan" if segment.running else "")
        cells.fill(first, end, self._characters.bar, colour)
        number = str(segment.attempt)
        if end - first >= len(number) + _LEAST_COLUMNS:
            for place, digit in enumerate(number, first):
                cells.put(place, digit, colour)
        last = self._characters.open_end if segment.running else LETTERS.get(segment.outcome or "", "?")
        cells.put(end - 1, last, f"bold {colour}".strip())

    def _within(self, mark: Mark, lane: Lane) -> int:
        """A request to stop is on the bar of the attempt that it is about."""
        column = self._grid.column(mark.place)
        bar = self._bars.get((lane.worker, mark.attempt))
        if bar is None or mark.kind != "cancel_requested":
            return column
        return min(max(column, bar[0]), bar[1] - 1)

    def _axis(self) -> Text:
        """Times since the beginning, and the breaks."""
        cells = _Cells(self._room)
        begin = self._timeline.axis.begin
        self._breaks(cells)
        said = ""
        for tick in self._timeline.axis.ticks(_TICK_COLUMNS / self._room):
            elapsed = (tick.at - begin).total_seconds()
            text = f"+{span(elapsed)}" if elapsed else "0"
            if text != said and cells.write(min(self._grid.column(tick.place), self._room - len(text)), text):
                said = text
        return self._named("", cells)

    def _breaks(self, cells: _Cells) -> None:
        for gap in self._timeline.axis.breaks:
            first, end = self._grid.column(gap.start), self._grid.column(gap.stop)
            middle = (first + end) // 2
            cells.put(middle, self._characters.cut, "bold")
            if middle + 1 < end:
                cells.put(middle + 1, self._characters.cut, "bold")

    def _named(self, name: str, cells: _Cells) -> Text:
        line = _plain(_shortened(name, self._names, self._characters.ellipsis))
        line.pad_right(self._names - line.cell_len + _GAP)
        return line.append_text(cells.text())

    def _legend(self) -> list[Text]:
        """Only of what is there, in as many lines as it takes."""
        said = [f"{LETTERS[kind]} {word(kind)}" for kind in self._timeline.kinds if kind != "claimed"]
        if any(segment.running for segment in self._timeline.segments):
            said.append(f"{self._characters.bar}{self._characters.open_end} still runs")
        if self._timeline.axis.breaks:
            said.append(f"{self._characters.cut * 2} a wait cut short")
        lines = [""]
        for item in said:
            if len(lines[-1]) + len(item) + 2 > self._room and lines[-1]:
                lines.append("")
            lines[-1] += f"  {item}" if lines[-1] else item
        return [_plain(" " * (self._names + _GAP) + line, "dim") for line in lines if line]


class _Cells:
    """One line of the grid. A mark never hides another mark while there is room beside it."""

    def __init__(self, columns: int) -> None:
        self._signs = [(" ", "")] * columns
        self._taken: set[int] = set()

    def fill(self, first: int, end: int, sign: str, style: str) -> None:
        for column in range(max(first, 0), min(end, len(self._signs))):
            self._signs[column] = (sign, style)

    def put(self, column: int, sign: str, style: str) -> None:
        if 0 <= column < len(self._signs):
            self._signs[column] = (sign, style)
            self._taken.add(column)

    def mark(self, column: int, sign: str, style: str) -> None:
        columns = range(len(self._signs))
        free = min(
            (c for c in columns if c not in self._taken), key=lambda c: (abs(c - column), c < column), default=None
        )
        self.put(column if free is None else free, sign, style)

    def write(self, column: int, text: str) -> bool:
        """If nothing is written there yet, nor beside it."""
        if not self._taken.isdisjoint(range(column - 1, column + len(text) + 1)):
            return False
        for place, sign in enumerate(text, column):
            self.put(place, sign, "dim")
        return True

    def text(self) -> Text:
        line = _plain("")
        for style, signs in groupby(self._signs, key=lambda cell: cell[1]):
            line.append("".join(sign for sign, _style in signs), style or None)
        line.rstrip()
        return line


def _name(lane: Lane) -> str:
    return "by hand" if lane.worker is None else output.one_line(lane.worker)


def _sign(kind: str) -> tuple[str, str]:
    return LETTERS.get(kind, "?"), f"bold {COLOURS.get(kind, '')}".strip()


def _plain(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True)


def _shortened(name: str, width: int, ellipsis: str) -> str:
    """A worker's name is cut in its middle: what tells it from its neighbours is at the end."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(name) <= width:
        return name
    tail = name[-(width // 2) :]
    while cell_len(tail) > width // 2:
        tail = tail[1:]
    return f"{set_cell_size(name, width - cell_len(tail) - 1)}{ellipsis}{tail}"
