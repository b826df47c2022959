"""`holdfast jobs list`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State


def list_jobs(
    context: typer.Context,
    state: Annotated[list[State] | None, typer.Option(help="Only these; may be given more than once.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, up to 1000.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this job.")] = None,
    json: Json = False,
) -> None:
    """The jobs, newest first. Exit code 1 when there is none."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        page = store.jobs(states=state or (), queue=queue, task=task, limit=limit, after=after)
    if session.json:
        output.document({"jobs": page.items, "after": page.after})
    elif page.items:
        _print(page.items)
        if page.after:
            output.remark(f"There are more: --after {page.after}")
    else:
        output.remark("There is no such job.")
    if not page.items:
        raise typer.Exit(1)


def _print(jobs: tuple[Job, ...]) -> None:
    now = datetime.now(UTC)
    headers = ("id", "task", "queue", "state", "attempt", "created", "")
    rows = [(j.id, j.task, j.queue, j.state, j.attempt, age(j.created_at, now), standing(j, now)) for j in jobs]
    output.table(headers, rows)


def standing(job: Job, now: datetime) -> str:
    """What one would ask next about a job in this state."""
    match job.state:
        case State.PENDING if job.run_after > now:
            return f"due {age(job.run_after, now)}"
        case State.RETRYABLE:
            due = f"again {age(job.run_after, now)}" if job.run_after > now else "due"
            return f"{due}; {_error(job)}"
        case State.RUNNING:
            return f"{'cancel requested, ' if job.cancel_requested_at else ''}on {job.lease_owner}"
        case State.FAILED:
            return _error(job)
        case _:
            return ""


def _error(job: Job) -> str:
    error = job.last_error or {}
    return f"{error.get('code', '')}: {error.get('message', '')}".partition("\n")[0][:80]
