"""`holdfast verify`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from holdfast.cli import output
from holdfast.cli.progress_shown import Steps, shown
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.jsonable import iso

if TYPE_CHECKING:
    from holdfast.maintenance.verify import Verdict
    from holdfast.stores.sql_store import SqlStore


def verify(context: typer.Context, json: Json = False) -> None:
    """Check every job's history against the lifecycle. Exit code 1 on a violation."""
    session = begin(context, json)
    with opened(session.settings()) as store, shown("reading histories", "events", silent=session.json) as steps:
        verdict = check(store, steps)
    if session.json:
        output.document(verdict)
    else:
        print_verdict(verdict)
    if not verdict.ok:
        raise typer.Exit(1)


def check(store: SqlStore, steps: Steps | None = None) -> Verdict:
    """The events are counted only for somebody who waits and looks."""
    from holdfast.maintenance.verify import verify as verify_histories
    from holdfast.wiring.sql import histories, references

    found = histories(store)
    if steps is None or not steps.seen:
        return verify_histories(found, references=references(store))
    return verify_histories(
        found, lambda read: steps.told(read.done, read.total), references=references(store), total=found.count()
    )


def print_verdict(verdict: Verdict) -> None:
    read = f"{verdict.jobs:,} jobs, {verdict.events:,} events"
    if verdict.retired is not None:
        retired = verdict.retired
        output.line(
            f"Retired so far: the histories of {retired.jobs:,} jobs ({retired.events:,} events),"
            f" pruned up to {iso(retired.through)}."
        )
    if verdict.ok:
        output.line(f"In order: {read}, no violation.")
        return
    output.table(("id", "rule", "detail"), [(v.job_id, v.rule, v.detail) for v in verdict.violations])
    count = len(verdict.violations) + verdict.unlisted
    output.line(f"Not in order: {read}, {count:,} violations{_unlisted(verdict)}.")


def _unlisted(verdict: Verdict) -> str:
    return f" ({verdict.unlisted:,} more than are listed here)" if verdict.unlisted else ""
