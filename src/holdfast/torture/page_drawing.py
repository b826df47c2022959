"""The whole run in one drawing, from the top: curves, a lane for each kind of fault, a lane for each process.

Two pictures of the same height stand side by side: the names, which stay where they are on a narrow screen, and what
they name. Every fault is a band over all of it, so that a dip and its cause are seen together. What is drawn has one
of the classes that are written here; names that come from the run are text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from holdfast.serve.dashboard.words import duration, number, shortened
from holdfast.torture.page_scale import WIDE, Across, Bin, across, bins, percent, rounded_up
from holdfast.torture.report import Kind, is_late, kinds, moment
from holdfast.torture.results import Life, Result, Strike

HEAD = 18  # the axis, written above and below
GAP = 14
LANE, BAR = 17, 11
HEADING = 20
NARROWEST = 0.0016
END = 0.0026  # the width of the mark where a process ended
TAIL = 3
LONGEST_NAME = 24
ENDINGS = {"killed": "is-killed", "terminated": "is-terminated", "still there": "is-there"}

Value = Callable[[Bin], float]


@dataclass(frozen=True, slots=True)
class Curve:
    kind: str
    word: str
    value: Value
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    height: int
    curves: tuple[Curve, ...]
    columns: bool = False  # of counts, which are no rate


CHARTS = (
    Chart(
        "jobs a second",
        112,
        (
            Curve("succeeded", "ended", lambda bin: bin.ended, filled=True),
            Curve("running", "claimed", lambda bin: bin.claimed),
            Curve("pending", "accepted", lambda bin: bin.accepted),
        ),
    ),
    Chart("waiting", 50, (Curve("retryable", "", lambda bin: bin.waiting, filled=True),)),
    Chart("running", 38, (Curve("running", "", lambda bin: bin.running, filled=True),)),
    Chart("leases lost", 38, (Curve("failed", "", lambda bin: bin.lost),), columns=True),
)


@dataclass(frozen=True, slots=True)
class Text:
    y: float
    text: str
    kind: str = ""
    x: str = "0"
    anchor: str = "start"
    told: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    x: str
    width: str
    y: float
    height: float
    kind: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    y: float
    height: int
    kind: str
    line: str
    area: str


@dataclass(slots=True)
class Drawing:
    """`height` is where the next thing goes while it is being drawn."""

    axis: Across
    height: float = HEAD + 4
    names: list[Text] = field(default_factory=list)
    scales: list[Text] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)  # lines across
    paths: list[Path] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    bands: list[Box] = field(default_factory=list)
    slots: list[Box] = field(default_factory=list)  # what a pointer over the curves is told
    ticks: list[Text] = field(default_factory=list)
    quiet: Box | None = None  # after the last fault

    @property
    def wide(self) -> int:
        return WIDE


def draw(result: Result) -> Drawing:
    drawing = Drawing(across(result))
    _draw_charts(drawing, bins(result.timeline, drawing.axis.seconds))
    _draw_faults(drawing, [kind for kind in kinds(result) if kind.count])
    _draw_lives(drawing, result.lives)
    _draw_bands(drawing, result)
    _draw_axis(drawing)
    return drawing


def _draw_charts(drawing: Drawing, steps: Sequence[Bin]) -> None:
    top = drawing.height
    for chart in CHARTS:
        _draw_chart(drawing, chart, steps)
    for step in steps:
        until = step.at + step.seconds
        drawing.slots.append(_span(drawing.axis, step.at, until, top, drawing.height - top, "slot", _told(step)))


def _draw_chart(drawing: Drawing, chart: Chart, steps: Sequence[Bin]) -> None:
    y = drawing.height
    highest = rounded_up(max((curve.value(step) for curve in chart.curves for step in steps), default=0.0))
    drawing.names.append(Text(y + 11, chart.name, "name"))
    drawing.names += [
        Text(y + 29 + 15 * row, curve.word, f"key is-{curve.kind}")
        for row, curve in enumerate(chart.curves)
        if curve.word
    ]
    drawing.scales.append(Text(y + 10, f"{highest:,g}", "scale"))
    drawing.levels += [y, y + chart.height]
    for curve in chart.curves:
        if chart.columns:
            drawing.boxes += _columns(drawing.axis, curve, steps, y, chart.height, highest)
        elif steps:
            drawing.paths.append(_path(drawing.axis, curve, steps, y, chart.height, highest))
    drawing.height = y + chart.height + GAP


def _path(axis: Across, curve: Curve, steps: Sequence[Bin], y: float, height: int, highest: float) -> Path:
    points = [
        (axis.share(step.at + step.seconds / 2) * WIDE, height * (1 - curve.value(step) / highest)) for step in steps
    ]
    line = " ".join(f"{x:.1f},{up:.1f}" for x, up in points)
    area = f"{points[0][0]:.1f},{height} {line} {points[-1][0]:.1f},{height}" if curve.filled else ""
    return Path(y, height, curve.kind, line, area)


def _columns(axis: Across, curve: Curve, steps: Sequence[Bin], y: float, height: int, highest: float) -> Iterator[Box]:
    for step in steps:
        up = height * curve.value(step) / highest
        if up > 0:
            yield _span(axis, step.at, step.at + step.seconds * 0.8, y + height - up, up, f"column is-{curve.kind}")


def _told(step: Bin) -> str:
    until = step.at + step.seconds
    when = moment(step.at) if step.seconds == 1 else f"{moment(step.at)} to {moment(until)}"
    rates = f"accepted {number(step.accepted)}, claimed {number(step.claimed)}, ended {number(step.ended)} a second"
    return (
        f"{when}\n{rates}\n{number(step.waiting)} waiting, {number(step.running)} running\nleases lost: {step.lost:,}"
    )


def _draw_faults(drawing: Drawing, found: Sequence[Kind]) -> None:
    if not found:
        return
    _heading(drawing, "faults")
    for kind in found:
        y = drawing.height
        drawing.names.append(_name(y, kind.name, f"{kind.name}: {kind.count:,}"))
        drawing.names.append(Text(y + LANE - 5, f"{kind.count:,}", "count", "100%", "end"))
        drawing.boxes.append(Box("0", "100%", y + 2, LANE - 3, "lane"))
        for strike in kind.strikes:
            drawing.boxes += _strike(drawing.axis, strike, y + 4)
        drawing.height += LANE
    drawing.height += GAP


def _strike(axis: Across, strike: Strike, y: float) -> Iterator[Box]:
    """The fault itself, and how long it took until all was well: a thin line behind it."""
    told = told_of(strike)
    if strike.recovered_seconds is not None:
        well = strike.until + strike.recovered_seconds
        kind = "tail is-late" if is_late(strike) else "tail"
        yield _span(axis, strike.at, well, y + (BAR - 1 - TAIL) / 2, TAIL, kind, told)
    missed = strike.recovered_seconds is None and strike.bound_seconds is not None
    yield _span(
        axis, strike.at, strike.until, y, BAR - 1, "strike is-late" if missed or is_late(strike) else "strike", told
    )


def told_of(strike: Strike) -> str:
    lasted = strike.until - strike.at
    when = f"at {moment(strike.at)}" + (f" for {duration(lasted)}" if lasted > 0 else "")
    lines = [f"{strike.kind}: {strike.target} {when}", strike.detail, _outcome(strike)]
    return shortened("\n".join(line for line in lines if line), 400)


def _outcome(strike: Strike) -> str:
    at_most = "" if strike.bound_seconds is None else f", at most {duration(strike.bound_seconds)}"
    if strike.recovered_seconds is not None:
        return f"{strike.recovered_what or 'well again'} after {duration(strike.recovered_seconds)}{at_most}"
    return f"not seen to recover{at_most}" if at_most else ""


def _draw_lives(drawing: Drawing, lives: Sequence[Life]) -> None:
    doors: dict[str, dict[str, list[Life]]] = {}
    for life in lives:
        doors.setdefault(life.door, {}).setdefault(life.name, []).append(life)
    for door, members in doors.items():
        _heading(drawing, door)
        for name, played in members.items():
            _draw_member(drawing, name, played)
        drawing.height += GAP / 2


def _draw_member(drawing: Drawing, name: str, played: Sequence[Life]) -> None:
    y = drawing.height
    drawing.names.append(_name(y, name, f"{name}: {len(played):,} lives"))
    drawing.names.append(Text(y + LANE - 5, f"{len(played):,}", "count", "100%", "end"))
    for life in played:
        told = f"{life.name}, {moment(life.began)} to {moment(life.ended)}: {life.ending or 'ended'}"
        ending = ENDINGS.get(life.ending, "is-ended")
        drawing.boxes.append(_span(drawing.axis, life.began, life.ended, y + 4, BAR - 2, "life", told))
        if ending != "is-there":
            mark = _span(drawing.axis, life.ended, life.ended, y + 3, BAR, f"ending {ending}", told)
            drawing.boxes.append(replace(mark, width=percent(END)))
    drawing.height += LANE


def _draw_bands(drawing: Drawing, result: Result) -> None:
    top, height = HEAD, drawing.height - HEAD
    for strike in result.strikes:
        drawing.bands.append(_span(drawing.axis, strike.at, strike.until, top, height, "band"))
    if drawing.axis.seconds > result.seconds > 0:
        drawing.quiet = _span(drawing.axis, result.seconds, drawing.axis.seconds, top, height, "quiet")


def _draw_axis(drawing: Drawing) -> None:
    bottom = drawing.height + 12
    for at in drawing.axis.ticks():
        share = drawing.axis.share(at)
        anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        drawing.ticks.append(Text(bottom, moment(at), "", percent(share), anchor))
    drawing.height = bottom + 4


def _heading(drawing: Drawing, text: str) -> None:
    drawing.names.append(Text(drawing.height + 12, shortened(text, LONGEST_NAME), "name", told=text))
    drawing.height += HEADING


def _name(y: float, name: str, told: str) -> Text:
    return Text(y + LANE - 5, shortened(name, LONGEST_NAME), "", told=shortened(told, 200))


def _span(axis: Across, begin: float, end: float, y: float, height: float, kind: str, told: str = "") -> Box:
    start = axis.share(begin)
    width = max(axis.share(end) - start, NARROWEST)
    return Box(percent(min(start, 1 - width)), percent(width), round(y, 1), round(height, 1), kind, told)
