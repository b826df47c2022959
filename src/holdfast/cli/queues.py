"""`holdfast queues`, and `pause`, `resume` and `limit` below it"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.limits import whole_number
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain.views import QueueView

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

Name = Annotated[str, typer.Argument(metavar="NAME")]


def list_queues(context: typer.Context, json: Json = False) -> None:
    session = begin(context, json)
    if context.invoked_subcommand is not None:
        context.obj = session  # `queues --json pause NAME`
        return
    with opened(session.settings()) as store:
        queues = store.queues()
    if session.json:
        output.document({"queues": queues})
    elif queues:
        _print(queues)
    else:
        output.remark("Nothing is queued, running, paused or limited.")


def pause(context: typer.Context, name: Name, json: Json = False) -> None:
    """Let nobody claim from a queue. Jobs that run go on."""
    _change(begin(context, json), name, lambda store: store.pause_queue(name))


def resume(context: typer.Context, name: Name, json: Json = False) -> None:
    """End a pause."""
    _change(begin(context, json), name, lambda store: store.resume_queue(name))


def limit(
    context: typer.Context,
    name: Name,
    most: Annotated[str, typer.Argument(metavar="N|none", help="How many of its jobs may run at once.")],
    json: Json = False,
) -> None:
    """Bound how many jobs of a queue run at once, over the whole fleet; `none` lifts the bound."""
    max_running = whole_number(most, "limit")
    _change(begin(context, json), name, lambda store: store.limit_queue(name, max_running))


def _change(session: Session, name: str, change: Callable[[SqlStore], None]) -> None:
    with opened(session.settings(), create=True) as store:
        change(store)
        queue = next((view for view in store.queues() if view.name == name), QueueView(name, 0, 0, 0, None, None, None))
    if session.json:
        output.document(queue)
    else:
        _print([queue])


def _print(queues: list[QueueView]) -> None:
    now = datetime.now(UTC)
    headers = ("queue", "ready", "scheduled", "running", "limit", "oldest ready", "")
    rows = [
        (q.name, q.ready, q.scheduled, q.running, q.max_running, age(q.oldest_ready_at, now), _paused(q))
        for q in queues
    ]
    output.table(headers, rows)


def _paused(queue: QueueView) -> str | None:
    return "paused" if queue.paused_at else None
