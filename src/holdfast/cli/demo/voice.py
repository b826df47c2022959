"""How the story is told: scenes, and lines that say when, what and why it matters. On a pipe one line is one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from holdfast.cli import output

WHEN = 7  # columns: " 12.3 s"
MARGIN = " " * (WHEN + 2)


class Voice:
    """Silent when a program listens: it gets a document at the end."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def title(self, text: str, below: str) -> None:
        if not self._silent:
            output.line(text, "bold")
            output.line(below, "dim")

    def scene(self, text: str) -> None:
        if not self._silent:
            output.line(f"\n{text}", "bold cyan")

    def say(self, text: str, why: str = "", style: str = "") -> None:
        """What has happened, at this moment; `why` is what it means."""
        if self._silent:
            return
        when = f"{self.seconds():.1f} s".rjust(WHEN)
        if sys.stdout.isatty():
            self._fold(when, text, why, style)
            return
        output.line(f"{when}  {text}", style)
        if why:
            output.line(f"{MARGIN}{why}")

    def whole(self, text: str) -> None:
        """Something to copy, which is never folded."""
        self.line(f"{MARGIN}{text}")

    def show(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not self._silent:
            output.table(headers, rows, indent=len(MARGIN))

    def line(self, text: str = "", style: str = "") -> None:
        if not self._silent:
            output.line(text, style)

    def _fold(self, when: str, text: str, why: str, style: str) -> None:
        """Long lines go on below their own beginning."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True, width=WHEN)
        grid.add_column(overflow="fold")
        grid.add_row(when, Text(output.safe(text), style=style))
        if why:
            grid.add_row("", Text(output.safe(why), style="dim"))
        output.console().print(grid)
