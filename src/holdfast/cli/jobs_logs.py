"""`holdfast jobs logs ID`"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.progress import progress_bar
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.jsonable import iso
from holdfast.domain.logs import LogLine, LostLines, Stream
from holdfast.tasks.following import Ended, Followed, Progress, follow, said

INTERRUPTED = 130


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_RANK = {str(level): rank for rank, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Wanted:
    stream: Stream | None
    level: Level | None

    def __call__(self, item: Followed) -> bool:
        if not isinstance(item, LogLine):
            return True
        if self.stream is not None and item.stream is not self.stream:
            return False
        if self.level is None:
            return True
        # What was printed has no level; a level of the user's own making counts as information.
        return item.level is not None and _RANK.get(item.level, _RANK["info"]) >= _RANK[self.level]


def logs(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    attempt: Annotated[int | None, typer.Option(metavar="N", help="Only what this attempt said.")] = None,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends; with --json one document a line.")
    ] = False,
    stream: Annotated[Stream | None, typer.Option(help="Only this one of the three.")] = None,
    level: Annotated[Level | None, typer.Option(help="Only what was logged at this level or above.")] = None,
    json: Json = False,
) -> None:
    """What a job said, attempt by attempt: its log, and what it wrote to stdout and stderr."""
    session = begin(context, json)
    wanted = Wanted(stream, level)
    with opened(session.settings()) as store:
        job = store.job(job_id)  # so that an unknown job is an error and a quiet one is not
        if follow_it:
            _follow(filter(wanted, follow(store, job.id, attempt)), session.json)
        elif session.json:
            _print_document(filter(wanted, said(store, job.id, attempt)))
        elif not _print_lines(filter(wanted, said(store, job.id, attempt))):
            output.remark("It has said nothing.")


def _print_document(found: Iterable[LogLine | LostLines]) -> None:
    lines, lost = [], 0
    for item in found:
        if isinstance(item, LogLine):
            lines.append(item)
        else:
            lost += item.count
    output.document({"logs": lines, "lost": lost})


def _print_lines(found: Iterable[LogLine | LostLines]) -> bool:
    said_something = False
    for item in found:
        said_something = True
        for text in _texts(item):
            output.plain(text)
    return said_something


def _follow(found: Iterator[Followed], json: bool) -> None:
    try:
        for item in found:
            if json:
                output.record(_record(item))
                continue
            for text in _texts(item):
                output.plain(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _record(item: Followed) -> dict[str, Any]:
    match item:
        case LogLine():
            return {"event": "log", **item.to_json(), "at": item.at}
        case LostLines():
            return {"event": "lost", "attempt": item.attempt, "count": item.count}
        case Progress():
            return {"event": "progress", "attempt": item.attempt, "progress": item.value}
        case Ended():
            return {"event": "ended", "id": item.job.id, "state": item.job.state, "attempt": item.job.attempt}


def _texts(item: Followed) -> list[str]:
    match item:
        case LogLine():
            return _line(item)
        case LostLines():
            return [f"… {item.count:,} lines lost"]
        case Progress():
            return [f"… {progress_bar(item.value)}"] if sys.stdout.isatty() else []
        case Ended():
            return [f"… the job is {item.job.state}" + (f" (attempt {item.job.attempt})" if item.job.attempt else "")]


def _line(line: LogLine) -> list[str]:
    origin = str(line.stream) if line.stream is not Stream.LOG else line.level or "log"
    shown = {name: value for name, value in line.fields.items() if name not in _OWN_LINES}
    fields = f" {json_text.dumps(shown, ensure_ascii=False)}" if shown else ""
    first = f"{iso(line.at)}  {line.attempt}  {origin:<7}  {line.message}{fields}"
    texts = [str(line.fields[name]) for name in _OWN_LINES if name in line.fields]
    return [first, *(f"    {row}" for text in texts for row in text.splitlines())]


_OWN_LINES = ("exception", "stack")
