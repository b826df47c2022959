"""A bar on stderr for a person who waits for a long command. It leaves no trace.

Only on a terminal, and never where a program reads. A total that nobody knows is not made up: then there is no
percentage, and what was counted is said as what it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.cli import output


@dataclass(frozen=True, slots=True)
class Steps:
    """Tell it how far it is. `seen` is false when nobody looks: what costs something just to be shown can be left."""

    seen: bool
    _draw: Callable[[int, int | None, str], None]
    _unit: str

    def told(self, done: int, total: int | None = None, counted: bool = True) -> None:
        """Without `counted` the total is only the least that there will be."""
        sure = total if counted and total is not None and done <= total else None
        self._draw(done, sure, words(done, total, counted, self._unit))


def words(done: int, total: int | None, counted: bool, unit: str) -> str:
    if total is None or done > total:
        return f"{done:,} {unit}"
    return f"{done:,} of {total:,} {unit}" if counted else f"{done:,} of {total:,} {unit} or more"


@contextmanager
def shown(what: str, unit: str = "", *, silent: bool = False) -> Iterator[Steps]:
    """Until the first step is told there is only a pulse, and how long it has taken."""
    if silent or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Steps(False, lambda _done, _total, _words: None, unit)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, words="")

        def draw(done: int, total: int | None, said: str) -> None:
            bar.update(task, completed=done, total=total, words=said.strip())

        yield Steps(True, draw, unit)
