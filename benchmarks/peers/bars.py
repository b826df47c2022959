"""Horizontal bars as SVG, in colours that can be read on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 760
LABELS = 160  # room for names on the left
FIGURES = 90  # and for figures on the right
BAR = 11
GAP = 9
TOP = 58
BOTTOM = 14
SHORTEST = 2.0

STYLE = """
  svg { font: 12px system-ui, sans-serif; }
  .page { fill: #ffffff; } text { fill: #24292f; } .quiet { fill: #57606a; }
  .first { fill: #8c959f; } .second { fill: #c4cad1; }
  .ours.first { fill: #0969da; } .ours.second { fill: #7cb4f0; } .title { font-size: 15px; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } text { fill: #e6edf3; } .quiet { fill: #9198a1; }
    .first { fill: #7d8590; } .second { fill: #4a515a; }
    .ours.first { fill: #4493f8; } .ours.second { fill: #2a5c9e; }
  }"""


@dataclass(frozen=True)
class Row:
    label: str
    values: tuple[float | None, ...]  # one for each series
    ours: bool = False


@dataclass(frozen=True)
class Chart:
    title: str
    series: tuple[str, ...]
    rows: Sequence[Row]
    logarithmic: bool = False
    ascending: bool = False  # less is better, and comes first


def svg(chart: Chart) -> str:
    """Rows sorted by their first value, the best on top; what has none is left out."""
    rows = [row for row in chart.rows if row.values[0] is not None]
    rows.sort(key=lambda row: row.values[0] or 0.0, reverse=not chart.ascending)
    height = TOP + len(rows) * (BAR * len(chart.series) + GAP) + BOTTOM
    known = [value for row in rows for value in row.values if value]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(chart.title)}</title><style>{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="14" y="24">{escape(chart.title)}</text>',
        f'<text class="quiet" x="14" y="43">{escape(_legend(chart))}</text>',
    ]
    for place, row in enumerate(rows):
        lines += _row(row, TOP + place * (BAR * len(chart.series) + GAP), known, logarithmic=chart.logarithmic)
    return "\n".join([*lines, "</svg>", ""])


def _legend(chart: Chart) -> str:
    places = ("upper bar", "lower bar")
    named = ", ".join(f"{place}: {series}" for place, series in zip(places, chart.series, strict=False))
    return named + (" (logarithmic)" if chart.logarithmic else "")


def _row(row: Row, top: int, known: Sequence[float], *, logarithmic: bool) -> list[str]:
    middle = top + BAR * len(row.values) / 2 + 4
    weight = ' font-weight="600"' if row.ours else ""
    lines = [f'<text x="{LABELS - 8}" y="{middle:.0f}" text-anchor="end"{weight}>{escape(row.label)}</text>']
    for number, value in enumerate(row.values):
        if value is None:
            continue
        shade = ("first", "second")[number] + (" ours" if row.ours else "")
        length, y = bar_length(value, known, logarithmic=logarithmic), top + number * BAR
        lines.append(f'<rect class="{shade}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 1}" rx="2"/>')
        lines.append(f'<text class="quiet" x="{LABELS + length + 6:.1f}" y="{y + 9}">{figure(value)}</text>')
    return lines


def bar_length(value: float, known: Sequence[float], *, logarithmic: bool) -> float:
    """The largest fills the room. On a logarithmic scale the least begins a tenth of the way in."""
    room = WIDTH - LABELS - FIGURES
    largest, least = max(known), min(known)
    if not logarithmic or largest == least:
        return max(SHORTEST, room * value / largest)
    share = math.log(value / least) / math.log(largest / least)
    return room * (0.1 + 0.9 * share)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
