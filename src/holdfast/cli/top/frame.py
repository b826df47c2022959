"""One frame: lines that fit a terminal of so many columns and rows. Nothing wraps; sections share the rows.

Each section gets a heading and one row, as far as the room goes; the chosen one then gets what it wants, and the others
take turns for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli.output import STYLES, one_line
from holdfast.cli.top.sections import Cell, Column, Section, sections
from holdfast.cli.top.sight import Sight
from holdfast.domain.views import StateCount
from holdfast.settings import mask_secrets

if TYPE_CHECKING:
    from rich.text import Text

SPARKS = "▁▂▃▄▅▆▇█"
PLAIN_SPARKS = "_.-=+*#@"
_PLAIN = str.maketrans("█░…", "#.~")
_GAP = 2
_LEAST_NAME = 6
_LONGEST_SPARK = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """What is said around what is seen."""

    store: str
    problem: str | None = None
    paused: bool = False
    chosen: int | None = None  # which section
    keys: bool = False
    unicode: bool = True


def frame(sight: Sight | None, standing: Standing, width: int, height: int | None = None) -> list[Text]:
    """Without a height: all there is."""
    lines = _drawn(sight, standing, width, height)
    if not standing.unicode:
        for line in lines:
            line.plain = line.plain.translate(_PLAIN)
    return lines


def _drawn(sight: Sight | None, standing: Standing, width: int, height: int | None) -> list[Text]:
    title = [_title(sight, standing, width)]
    if standing.problem is not None:
        title.append(_cut(_text(one_line(mask_secrets(standing.problem)), "bold red"), width))
    if sight is None:
        return title
    top = [*title, _flow(sight, standing, width), _states(sight.states, width)]
    bottom = [_keys(standing, width)] if standing.keys else []
    found = sections(sight)
    shown = [section for section in found if section.rows or section.nothing]
    chosen = None if standing.chosen is None else found[standing.chosen % len(found)].name
    if height is None:
        rows = [len(section.rows) for section in shown]
    else:
        rows = allot([len(s.rows) for s in shown], height - len(top) - len(bottom), _place(shown, chosen))
    body: list[Text] = []
    spaced = height is None or sum(_lines(rows)) + len(rows) + len(top) + len(bottom) <= height
    for section, count in zip(shown, rows, strict=True):
        if count >= 0:
            body += [_text("")] if spaced else []
            body += _section(section, count, width, section.name == chosen)
    lines = [*top, *body]
    if height is None:
        return lines + bottom
    lines = lines[: height - len(bottom)]
    return [*lines, *[_text("")] * (height - len(bottom) - len(lines)), *bottom]


def allot(wanted: Sequence[int], room: int, chosen: int | None = None) -> list[int]:
    """How many rows each section gets beside its heading; -1 where there is no room even for that."""
    given = [-1] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: (index != chosen, index))
    for least in (0, 1):
        for index in order:
            if room > 0 and given[index] == least - 1 and wanted[index] >= least:
                given[index] += 1
                room -= 1
    if chosen is not None and given[chosen] >= 0:
        more = min(room, wanted[chosen] - given[chosen])
        given[chosen] += more
        room -= more
    while room > 0 and any(0 <= given[index] < wanted[index] for index in order):
        for index in order:
            if room > 0 and 0 <= given[index] < wanted[index]:
                given[index] += 1
                room -= 1
    return given


def _lines(rows: list[int]) -> list[int]:
    return [count + 1 for count in rows if count >= 0]


def _place(shown: list[Section], name: str | None) -> int | None:
    return next((index for index, section in enumerate(shown) if section.name == name), None)


def _title(sight: Sight | None, standing: Standing, width: int) -> Text:
    line = _text("holdfast top", "bold")
    if sight is not None:
        line.append(f"  {sight.at:%H:%M:%S} UTC", "dim")
    if standing.paused:
        line.append("  paused", "bold yellow")
    if standing.problem is not None:
        line.append("  the store is away", "bold red")
    line.append(f"  {one_line(standing.store)}", "dim")
    return _cut(line, width)


def _flow(sight: Sight, standing: Standing, width: int) -> Text:
    flow = sight.throughput
    least = ">" if flow.at_least else ""
    done, enqueued = (f"{name} {least}{_rate(flow.per_second(counts))}/s " for name, counts in (
        ("done", flow.done), ("enqueued", flow.enqueued)))  # fmt: skip
    failed = f"failed {least}{_rate(flow.per_second(flow.failed))}/s"
    over = f"  in {flow.seconds:.0f} s"
    room = width - len(done) - len(enqueued) - len(failed) - len(over) - 2 * _GAP
    cells = max(0, min(_LONGEST_SPARK, room // 2))
    sparks = SPARKS if standing.unicode else PLAIN_SPARKS
    line = _text(done).append(sparkline(flow.done, cells, sparks), "green").append(" " * _GAP)
    line.append(enqueued).append(sparkline(flow.enqueued, cells, sparks), "cyan").append(" " * _GAP)
    line.append(failed, "red" if any(flow.failed) else "dim").append(over, "dim")
    return _cut(line, width)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def sparkline(counts: Sequence[int], cells: int, sparks: str = SPARKS) -> str:
    """Each as high as its share of the highest, the youngest at the right; several share a cell where they must."""
    if cells <= 0 or not counts:
        return ""
    size = max(1, -(-len(counts) // cells))
    sums = [sum(counts[max(0, end - size) : end]) for end in range(len(counts), 0, -size)][::-1]
    highest = max(sums)
    return "".join(sparks[-(-count * (len(sparks) - 1) // highest) if highest else 0] for count in sums)


def _states(states: Sequence[StateCount], width: int) -> Text:
    line = _text("")
    for count in states:
        if line.plain:
            line.append(" " * _GAP)
        number = f"{count.count:,}{'+' if count.at_least else ''}"
        line.append(f"{count.state} ", "dim").append(number, STYLES.get(count.state, "") if count.count else "dim")
    return _cut(line, width)


def _keys(standing: Standing, width: int) -> Text:
    pause = "p goes on" if standing.paused else "p pauses"
    return _cut(_text(f"q quits  {pause}  tab or arrows choose a section", "dim"), width)


def _section(section: Section, count: int, width: int, chosen: bool) -> list[Text]:
    style = "bold reverse" if chosen else "bold"
    total = len(section.rows)
    if not section.rows:
        return [_cut(_text(f"{section.name}  ", style).append(section.nothing, "dim not bold not reverse"), width)]
    name = f"{section.name} ({total})" if count == total else f"{section.name} ({count} of {total})"
    rows = section.rows[:count]
    columns = (Column(name, shrinks=section.columns[0].shrinks), *section.columns[1:])
    widths = fitted(columns, rows, width)
    heading = [Cell(column.header, style if place == 0 else "dim") for place, column in enumerate(columns)]
    return [_row(columns, row, widths, width) for row in [tuple(heading), *rows]]


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """The widths of the columns: what they need; or less for names, the longest first, where that is too much."""
    from rich.cells import cell_len

    widths = [max([cell_len(column.header), *(cell_len(row[place].text) for row in rows)])
              for place, column in enumerate(columns)]  # fmt: skip
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    names = [place for place, column in enumerate(columns) if column.shrinks]
    while over > 0 and names:
        longest = max(names, key=lambda place: widths[place])
        if widths[longest] <= max(_LEAST_NAME, len(columns[longest].header)):
            names.remove(longest)
            continue
        widths[longest] -= 1
        over -= 1
    return widths


def _row(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], width: int) -> Text:
    line = _text("")
    for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
        text = _cut(_text(cell.text, cell.style), widths[place])
        blank = " " * (widths[place] - text.cell_len)
        gap = " " * _GAP if place else ""
        line.append(gap)
        line = line.append(blank).append_text(text) if column.right else line.append_text(text).append(blank)
    line.rstrip()
    return _cut(line, width)


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text.assemble((text, style), no_wrap=True, overflow="crop")


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
