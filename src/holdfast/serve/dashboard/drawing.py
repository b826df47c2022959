"""The lease timeline of a job as SVG: places in percent of the width, so that text keeps its size on any screen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.domain.durations import spoken
from holdfast.domain.timeline import LETTERS, Lane, Mark, Segment, Timeline, Wait, word
from holdfast.serve.dashboard.words import clock, duration, shortened

TOP = 34  # the job's own row, above the lanes
LANE = 46
FOOT = 24
BAR_Y, BAR_HEIGHT = 18, 20
ROOM_FOR_TEXT = 0.07  # of the width
TICK_GAP = 0.14
NARROWEST = 0.004


@dataclass(frozen=True, slots=True)
class Bar:
    x: str
    width: str
    y: int
    kind: str
    text: str
    told: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A mark: a short line with its letter above."""

    x: str
    y: int
    kind: str
    letter: str
    told: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Row:
    y: int
    name: str


@dataclass(frozen=True, slots=True)
class Label:
    x: str
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Drawing:
    height: int
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    waits: tuple[Bar, ...]
    signs: tuple[Sign, ...]
    ticks: tuple[Label, ...]
    breaks: tuple[Label, ...]
    legend: tuple[tuple[str, str], ...]
    left_out: int


def draw(timeline: Timeline, now: datetime) -> Drawing:
    rows = tuple(Row(TOP + number * LANE, _name(lane)) for number, lane in enumerate(timeline.lanes))
    bars, signs = [], [_sign(mark, 0) for mark in timeline.marks]
    for row, lane in zip(rows, timeline.lanes, strict=True):
        bars += [_bar(segment, row.y, now) for segment in lane.segments]
        signs += [_sign(mark, row.y) for mark in lane.marks if mark.kind not in ("claimed", "succeeded")]
    return Drawing(
        height=TOP + len(rows) * LANE + FOOT,
        rows=rows,
        bars=tuple(bars),
        waits=tuple(_wait(wait) for wait in timeline.waits if not wait.over),
        signs=tuple(signs),
        ticks=tuple(_tick(tick.place, tick.at) for tick in timeline.axis.ticks(TICK_GAP)),
        breaks=tuple(
            Label(_percent((piece.start + piece.stop) / 2), spoken((piece.end - piece.begin).total_seconds()), "middle")
            for piece in timeline.axis.breaks
        ),
        legend=tuple((LETTERS[kind], word(kind)) for kind in timeline.kinds if kind not in ("claimed", "succeeded")),
        left_out=timeline.left_out,
    )


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _name(lane: Lane) -> str:
    return shortened(lane.worker or "by hand", 60)


def _bar(segment: Segment, y: int, now: datetime) -> Bar:
    took = ((segment.end or now) - segment.begin).total_seconds()
    kind = "running" if segment.running else segment.outcome or "unknown"
    width = max(segment.stop - segment.start, NARROWEST)
    when = f"{word(kind)} after {duration(took)}, from {clock(segment.begin)}"
    told = f"attempt {segment.attempt} on {segment.worker}: {when}"
    text = f"#{segment.attempt} · {duration(took)}" if width > ROOM_FOR_TEXT else ""
    return Bar(_percent(min(segment.start, 1 - width)), _percent(width), y + BAR_Y, kind, text, shortened(told, 200))


def _wait(wait: Wait) -> Bar:
    told = f"{wait.state} since {clock(wait.begin)}, because {word(wait.since)}"
    return Bar(_percent(wait.start), _percent(max(wait.stop - wait.start, NARROWEST)), 24, wait.state or "", "", told)


def _sign(mark: Mark, y: int) -> Sign:
    told = f"{word(mark.kind)} at {clock(mark.at)}"
    if mark.refusal is not None:
        told = f"{mark.refusal.verb} of {mark.refusal.worker} refused at {clock(mark.at)}: {mark.refusal.reason}"
    anchor = "start" if mark.place < 0.02 else "end" if mark.place > 0.98 else "middle"
    line_y = y + BAR_Y if y else 14
    return Sign(_percent(mark.place), line_y, mark.kind, LETTERS.get(mark.kind, "?"), shortened(told, 200), anchor)


def _tick(place: float, at: datetime) -> Label:
    return Label(_percent(place), clock(at), "start" if place < 0.05 else "end" if place > 0.95 else "middle")
