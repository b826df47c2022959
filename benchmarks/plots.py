"""Small line plots as SVG, by hand: they follow the reader's light or dark theme, and need nothing to be made.

A series is told from its neighbours by colour, by the shape of its points and by its line, so that a print or an eye
without colours can read it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, BOTTOM = 66, 24, 50
TITLE_Y, LEGEND_Y, LEGEND_STEP = 26, 50, 18
_LIGHT = ("#2563eb", "#c2410c", "#047857", "#a21caf", "#475569", "#a16207")
_DARK = ("#7aa7ff", "#fb923c", "#34d399", "#f0abfc", "#cbd5e1", "#facc15")
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "", "6 3")
_CHARACTER = 6.7  # the width of one, about, in the legend


class Point(NamedTuple):
    x: float
    y: float


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point | tuple[float, float]]
    marks: bool = True  # a dot for each; not for what is sampled every second


@dataclass(frozen=True)
class Plot:
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    ticks_x: Sequence[float] | None = None  # where the axis has its own, such as 1, 2, 4, 8

    def svg(self) -> str:
        legend, rows = _legend(self.series)
        top = LEGEND_Y + rows * LEGEND_STEP + 14
        points = [point for series in self.series for point in series.points]
        across = _Axis([p[0] for p in points], self.log_x, (LEFT, WIDTH - RIGHT), self.ticks_x)
        up = _Axis([p[1] for p in points], self.log_y, (HEIGHT - BOTTOM, top), None, from_zero=not self.log_y)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(self.title)}</title><style>{_style()}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text class="title" x="{LEFT}" y="{TITLE_Y}">{escape(self.title)}</text>',
            *legend,
            *_grid(across, up, top),
            f'<text class="label" x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">{escape(self.x)}</text>',
            f'<text class="label" x="12" y="{top - 10}">{escape(self.y)}</text>',
            *(_line(number, series, across, up) for number, series in enumerate(self.series)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.svg(), encoding="utf-8")


class _Axis:
    """From a value to a place on the picture, and where the ticks are."""

    def __init__(
        self,
        values: Sequence[float],
        log: bool,
        span: tuple[float, float],
        ticks: Sequence[float] | None,
        from_zero: bool = False,
    ) -> None:
        self._span = span
        self._scale: Callable[[float], float] = math.log10 if log else float
        known = [value for value in values if not log or value > 0] or [1.0]
        low, high = min(known), max(known)
        if from_zero:
            low = min(0.0, low)
        if ticks is not None:
            self.ticks = list(ticks)
        elif log:
            self.ticks = _log_ticks(low, high)
        else:
            self.ticks = _linear_ticks(low, high)
        self._low = self._scale(min(low, self.ticks[0]) if from_zero or log else low)
        self._high = self._scale(max(high, self.ticks[-1]))

    def place(self, value: float) -> float:
        if self._high == self._low:
            return sum(self._span) / 2
        share = (self._scale(value) - self._low) / (self._high - self._low)
        return self._span[0] + share * (self._span[1] - self._span[0])


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5 or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    every = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    inside = [tick for tick in every if low <= tick <= high]
    below = [tick for tick in every if tick <= low][-1:]
    above = [tick for tick in every if tick >= high][:1]
    return sorted({*below, *inside, *above})


def _grid(across: _Axis, up: _Axis, top: float) -> Iterator[str]:
    for tick in up.ticks:
        y = up.place(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>'
    for tick in across.ticks:
        x = across.place(tick)
        if LEFT - 1 <= x <= WIDTH - RIGHT + 1:
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{HEIGHT - BOTTOM + 4}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{short(tick)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'


def _line(number: int, series: Series, across: _Axis, up: _Axis) -> str:
    places = [(across.place(x), up.place(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    line = f'<polyline class="line {_class(number)}" points="{path}" stroke-dasharray="{_dash(number, series)}"/>'
    return line + "".join(_mark(number, x, y) for x, y in places if series.marks)


def _mark(number: int, x: float, y: float) -> str:
    match number % 3:
        case 0:
            return f'<circle class="mark {_class(number)}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return f'<rect class="mark {_class(number)}" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
        case _:
            corners = f"{x:.1f},{y - 4.5:.1f} {x + 4.5:.1f},{y + 3.5:.1f} {x - 4.5:.1f},{y + 3.5:.1f}"
            return f'<polygon class="mark {_class(number)}" points="{corners}"/>'


def _legend(shown: Sequence[Series]) -> tuple[list[str], int]:
    """In rows; what does not fit begins another."""
    found, x, row = [], float(LEFT), 0
    for number, series in enumerate(shown):
        wide = 34 + len(series.name) * _CHARACTER + 16
        if x > LEFT and x + wide > WIDTH - RIGHT:
            x, row = float(LEFT), row + 1
        y = LEGEND_Y + row * LEGEND_STEP
        swatch = f'<line class="line {_class(number)}" x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}"'
        mark = _mark(number, x + 13, y - 4) if series.marks else ""
        found.append(f'{swatch} stroke-dasharray="{_dash(number, series)}"/>{mark}')
        found.append(f'<text class="name" x="{x + 34}" y="{y}">{escape(series.name)}</text>')
        x += wide
    return found, row + 1


def _class(number: int) -> str:
    return f"s{number % len(_LIGHT)}"


def _dash(number: int, series: Series) -> str:
    return _DASHES[number % len(_DASHES)] if series.marks else ""


def short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _style() -> str:
    def colours(ground: str, text: str, faint: str, of: Sequence[str]) -> str:
        lines = "".join(f".s{n}{{stroke:{c}}}.mark.s{n}{{fill:{c}}}" for n, c in enumerate(of))
        return f".ground{{fill:{ground}}}text{{fill:{text}}}.grid{{stroke:{faint}}}.axis{{stroke:{text}}}{lines}"

    font = "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}.title{font-weight:600;font-size:15px}"
    shapes = ".line{fill:none;stroke-width:2.2;stroke-linejoin:round}.mark{stroke-width:0}.tick,.label{opacity:.8}"
    dark = colours("#0f172a", "#e2e8f0", "#273449", _DARK)
    light = colours("#ffffff", "#1f2937", "#e5e7eb", _LIGHT)
    return f"{font}{shapes}{light}@media(prefers-color-scheme:dark){{{dark}}}"
