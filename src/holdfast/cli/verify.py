"""`holdfast verify`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.jsonable import iso

if TYPE_CHECKING:
    from holdfast.maintenance.verify import Progress, Verdict
    from holdfast.stores.sql_store import SqlStore


def verify(context: typer.Context, json: Json = False) -> None:
    """Check every job's history against the lifecycle. Exit code 1 on a violation."""
    session = begin(context, json)
    with opened(session.settings()) as store, _progress(store) as on_progress:
        verdict = check(store, on_progress)
    if session.json:
        output.document(verdict)
    else:
        print_verdict(verdict)
    if not verdict.ok:
        raise typer.Exit(1)


def check(store: SqlStore, on_progress: Progress | None = None) -> Verdict:
    from holdfast.maintenance.verify import verify as verify_histories
    from holdfast.wiring.sql import histories, references

    return verify_histories(histories(store), on_progress, references=references(store))


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


@contextmanager
def _progress(store: SqlStore) -> Iterator[Progress | None]:
    """A bar for a person who waits; it leaves no trace."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress as Bar

    with Bar(console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading histories", total=sum(store.counts().values()))
        yield lambda jobs, events: bar.update(task, completed=jobs, description=f"{events:,} events")
