"""`holdfast workers`"""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.views import WorkerView


def workers(context: typer.Context, json: Json = False) -> None:
    """The workers that were alive within the last day, and when each was last heard of."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        found = store.workers()
    if session.json:
        output.document({"workers": found})
    elif found:
        _print(found)
    else:
        output.remark("No worker has reported within the last day.")


def _print(found: list[WorkerView]) -> None:
    now = datetime.now(UTC)
    headers = ("id", "state", "app", "queues", "running", "beat")
    output.table(headers, [(w.id, w.state, w.app, _queues(w), w.running, age(w.beat_at, now)) for w in found])


def _queues(worker: WorkerView) -> str:
    return "all" if worker.queues is None else ",".join(worker.queues)
