"""`holdfast stuck`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.lifecycle import State
from holdfast.domain.views import Stuck


def stuck(
    context: typer.Context,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many groups, up to 1000.")] = 50,
    json: Json = False,
) -> None:
    """The jobs that ought to be moving and are not, each group by its oldest job, with the reason and what to do."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        found = store.stuck(limit)
    if session.json:
        output.document({"stuck": found})
    elif found:
        _print(found)
    else:
        output.line("Nothing is stuck.")


def _print(found: list[Stuck]) -> None:
    now = datetime.now(UTC)
    headers = ("id", "task", "queue", "state", "jobs", "since", "reason")
    output.table(
        headers,
        [(s.job.id, s.job.task, s.job.queue, s.job.state, _count(s), age(_since(s), now), s.reason) for s in found],
    )
    for group in found:
        output.line(f"\n{group.job.id}  {group.reason}", "bold")
        output.line(f"  {group.detail}")
        output.line(f"  what to do: {group.advice}")


def _count(group: Stuck) -> str:
    return f"{group.count:,}+" if group.at_least else f"{group.count:,}"


def _since(group: Stuck) -> datetime | None:
    job = group.job
    return job.claimed_at if job.state is State.RUNNING else job.run_after
