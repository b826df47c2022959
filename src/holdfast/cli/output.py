"""What the command line prints: documents for programs, lines and tables for people, remarks on stderr.

Rich is loaded only for people. Where the output is not a terminal there are no colours, and nothing is cut to a width
that is not there: ids are always whole.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 10_000
_LAST_COLUMN = 24  # the width below which a last column is not folded
_GAP = 2
# DEL and C1, marks of direction and of nothing at all, line separators.
_STEERING = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def prepare_streams() -> None:
    """A character that the terminal has no code for is replaced; printing never fails for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def document(value: Any) -> None:
    """One JSON document: one line for programs, indented for a person who is looking."""
    print(_json(value, indent=2 if sys.stdout.isatty() else None))


def record(value: Any) -> None:
    """One of many JSON documents, each on a line of its own, for a program that reads them as they come."""
    print(_json(value), flush=True)


def _json(value: Any, indent: int | None = None) -> str:
    """JSON escapes the control characters of ASCII by itself; the others, and what turns the direction of a text, would
    steer a terminal as well. Escaped, they are the same document."""
    text = json.dumps(value, default=_encode, ensure_ascii=_needs_ascii(), indent=indent)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(text: str) -> None:
    """One of very many lines: with a style, `line` costs a hundred times more."""
    print(text if text.isprintable() else safe(text))


def _needs_ascii() -> bool:
    return sys.stdout.encoding.lower().replace("-", "") != "utf8"


def line(text: str, style: str = "") -> None:
    _say(text, style, sys.stdout)


def remark(text: str) -> None:
    """Something worth knowing that is not the answer."""
    _say(text, "dim", sys.stderr)


def _say(text: str, style: str, stream: TextIO) -> None:
    if not style or not (stream.isatty() or _wants_colours()):
        print(safe(text), file=stream)
        return
    found = console(stderr=stream is sys.stderr)
    found.print(safe(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _wants_colours() -> bool:
    """Some want them wherever the output goes; Rich knows the rest."""
    return bool(os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE"))


def error(text: str) -> None:
    if text:
        from holdfast.settings import mask_secrets

        print(f"holdfast: {safe(mask_secrets(text))}", file=sys.stderr)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], indent: int = 0) -> None:
    """Columns without lines. Only the last one may be folded; on a narrow terminal the lines run over its edge."""
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(value) for value in row] for row in rows]
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    for place, header in enumerate(headers):
        is_last = place == len(headers) - 1
        grid.add_column(header if place else " " * indent + header, overflow="fold", no_wrap=not is_last)
    for row in cells:
        first, *others = (Text(cell, style=STYLES.get(cell, "")) for cell in row)
        grid.add_row(Text(" " * indent).append_text(first), *others)
    console(least_width=indent + _least_width([list(headers), *cells])).print(grid)


def _least_width(rows: list[list[str]]) -> int:
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return sum(width + _GAP for width in widths[:-1]) + min(widths[-1], _LAST_COLUMN)


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values, one pair a line; what is not known is left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, _GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            grid.add_row(name, Text(_cell(value), style=STYLES.get(_cell(value), "")))
    console().print(grid)


def console(stderr: bool = False, least_width: int = 0) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    found = Console(file=stream)
    found.width = max(found.width, least_width) if stream.isatty() else _PIPED_WIDTH
    return found


def draws_unicode(found: Console) -> bool:
    return found.encoding.lower().replace("-", "") in ("utf8", "utf16")


def safe(text: str) -> str:
    """An error message can contain anything; what would steer the terminal is shown, not obeyed."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The same for what must not begin a new line either."""
    return " ".join(safe(text).split())


def _cell(value: object) -> str:
    return "" if value is None else safe(str(value))


def _encode(value: Any) -> Any:
    match value:
        case datetime():
            from holdfast.domain.jsonable import iso

            return iso(value)
        case Enum():
            return value.value
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


STYLES = {
    "pending": "",
    "running": "cyan",
    "retryable": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "paused": "yellow",
}
