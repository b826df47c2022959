"""`holdfast jobs logs ID`"""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.logs import LogLine, Stream

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

PAGE = 1_000


def logs(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    attempt: Annotated[int | None, typer.Option(metavar="N", help="Only what this attempt said.")] = None,
    json: Json = False,
) -> None:
    """What a job said, attempt by attempt: its log, and what it wrote to stdout and stderr."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        job = store.job(job_id)  # so that an unknown job is an error and a quiet one is not
        if session.json:
            output.document({"logs": list(_lines(store, job.id, attempt))})
            return
        said = False
        for line in _lines(store, job.id, attempt):
            said = True
            output.line(_text(line))
    if not said:
        output.remark("It has said nothing.")


def _lines(store: SqlStore, job_id: str, attempt: int | None) -> Iterator[LogLine]:
    """Page by page: a job may have said more than fits a memory."""
    after: tuple[int, int] | None = None
    while page := store.logs(job_id, attempt, after, PAGE):
        yield from page
        after = (page[-1].attempt, page[-1].number)


def _text(line: LogLine) -> str:
    origin = str(line.stream) if line.stream is not Stream.LOG else line.level or "log"
    fields = f" {json_text.dumps(line.fields, ensure_ascii=False)}" if line.fields else ""
    return f"{output.iso(line.at)}  {line.attempt}  {origin:<7}  {line.message}{fields}"
