"""`holdfast enqueue TASK [JSON]`

What is not given on the command line is taken from what a worker has announced of the task, then from the settings.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.json_text import parse
from holdfast.domain.manifest import defaults_of
from holdfast.domain.spec import MAX_DEPTH
from holdfast.tasks.options import positive_duration
from holdfast.tasks.tracing import FLUSH_SECONDS, enqueueing, flush, set_up


def enqueue(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name; it need not be importable here.")],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="Its parameters, a JSON object; - reads it from standard input.")
    ] = "{}",
    queue: Annotated[str | None, typer.Option(metavar="Q")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="From -100 to 100, higher first.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="10m", help="Do not run it before that much time.")] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="Failures and crashes together.")] = None,
    unique: Annotated[
        bool, typer.Option("--unique", help="If a job like this is waiting or running, answer with that one.")
    ] = False,
    unique_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same by a key of your own, whatever the parameters are.")
    ] = None,
    reuse: Annotated[
        str | None, typer.Option(metavar="1h", help="If one like this has succeeded no longer ago, answer with it.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="V", help="The task's version; part of what makes jobs alike.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="S", help="The outside system it touches, whose limits apply.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Told by a signed POST when the job has succeeded or failed.")
    ] = None,
    json: Json = False,
) -> None:
    """Store a job; print its id. What is not given is as a worker has announced the task."""
    session = begin(context, json)
    settings = session.settings()
    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay": delay,
        "max_attempts": max_attempts,
        "unique_key": unique_key,
        "reuse_seconds": None if reuse is None else positive_duration(reuse, "reuse"),
        "version": version,
        "source": source,
        "webhook": webhook,
    }
    given = {name: value for name, value in options.items() if value is not None}
    given |= {"task": task, "payload": read_payload(payload), "unique": unique}
    NewJob.from_options(given)  # refused before there is a file
    set_up("holdfast-enqueue", output.remark)
    with opened(settings, create=True) as store:
        known = store.announced(task)
        job = NewJob.from_options({**defaults_of(known, settings.lease_seconds), **given})
        with enqueueing([job], os.environ.get("TRACEPARENT")) as sent:
            answer = store.enqueue(sent.jobs[0])
            sent.answered([answer])
    print_enqueued(session, answer)
    flush(FLUSH_SECONDS)


def print_enqueued(session: Session, answer: Enqueued) -> None:
    if session.json:
        output.document(answer)
        return
    output.line(answer.id)
    if not answer.created:
        output.remark(f"It was there already and is {answer.state}; nothing was added.")


def read_payload(argument: str) -> dict[str, Any]:
    """As strictly as over HTTP: a text that two readers could read differently is no payload."""
    # What was not UTF-8 on the command line has become half characters; as bytes again, it is refused by its place.
    raw = sys.stdin.buffer.read() if argument == "-" else argument.encode("utf-8", "surrogatepass")
    payload = parse(raw, MAX_DEPTH, "payload")
    if not isinstance(payload, dict):
        raise InvalidInput("payload", f'must be a JSON object such as {{"name": "value"}}, got {_kind(payload)}')
    return payload


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
