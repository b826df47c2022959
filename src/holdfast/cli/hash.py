"""`holdfast hash TASK [JSON]`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.enqueue import read_payload
from holdfast.cli.session import Json, begin
from holdfast.domain.job import NewJob
from holdfast.domain.spec import canonical_spec


def hash_spec(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK")],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="Its parameters, a JSON object; - reads it from standard input.")
    ] = "{}",
    version: Annotated[str | None, typer.Option(metavar="V", help="The task's version, if it has one.")] = None,
    json: Json = False,
) -> None:
    """The identity of a run: its canonical text and the SHA-256 of that. No store is asked."""
    session = begin(context, json)
    job = NewJob(task=task, payload=read_payload(payload), version=version)
    canonical = canonical_spec(job.task, job.version, job.payload)
    if session.json:
        output.document({"spec_hash": job.spec_hash, "canonical": canonical})
        return
    if sys.stdout.isatty():
        output.line(canonical)
    else:  # to the byte, whatever it contains
        sys.stdout.flush()
        sys.stdout.buffer.write(canonical.encode() + b"\n")
    output.line(job.spec_hash)
