"""`holdfast retention`, and `set`, `unset` and `run` below it"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age, span
from holdfast.cli.progress_shown import shown
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain.jsonable import iso
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.retention import EVERY_QUEUE, FOREVER, Kept, Preview, Rule, check_keep, check_rule, check_state

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

Queue = Annotated[str, typer.Option(metavar="Q", help="Of this queue; else of every queue without a rule of its own.")]
States = Annotated[
    list[State] | None, typer.Option("--state", help="succeeded, failed or cancelled; may be given more than once.")
]
Histories = Annotated[
    bool, typer.Option("--histories", help="How long histories are kept once their jobs were pruned, not the jobs.")
]
CHORES = {"jobs": "retention", "histories": "histories", "leftovers": "leftovers"}  # by what they remove


def show(context: typer.Context, json: Json = False) -> None:
    session = begin(context, json)
    if context.invoked_subcommand is not None:
        context.obj = session  # `retention --json run`
        return
    with opened(session.settings()) as store:
        _show(session, store)


def set_rule(
    context: typer.Context,
    keep: Annotated[str, typer.Option(metavar="7d|forever", help="How long, such as 12h, 7d or forever.")],
    queue: Queue = EVERY_QUEUE,
    state: States = None,
    histories: Histories = False,
    json: Json = False,
) -> None:
    """Say how long finished jobs are kept, or with --histories what is on record of pruned ones. Holds at once."""
    session = begin(context, json)
    keep_seconds = check_keep(keep)
    rules = _named(queue, state, histories)
    with opened(session.settings(), create=True) as store:
        for what, name, ended in rules:
            store.set_retention(what, name, ended, keep_seconds)
        _show(session, store)


def unset_rule(
    context: typer.Context,
    queue: Queue = EVERY_QUEUE,
    state: States = None,
    histories: Histories = False,
    json: Json = False,
) -> None:
    """Take rules back: the general rule holds again, or the built-in one. Exit code 1 when there was none."""
    session = begin(context, json)
    rules = _named(queue, state, histories)
    with opened(session.settings()) as store:
        found = [store.unset_retention(what, name, ended) for what, name, ended in rules]
        _show(session, store)
    if not any(found):
        output.remark("There was no such rule.")
        raise typer.Exit(1)


def run(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json: Json = False,
) -> None:
    """Remove what has been kept for long enough, now. Workers do the same by themselves, a little at a time."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        preview = store.retention_preview()
        removed = None if dry_run else _remove(store, preview, session.json)
    if session.json:
        output.document({"removed": removed, "groups": preview})
    elif removed is None:
        _print_preview(preview)
    else:
        said = f"Removed {removed['jobs']:,} jobs and the histories of {removed['histories']:,}"
        output.line(f"{said}; {removed['leftovers']:,} other old rows.")


def _named(queue: str, states: list[State] | None, histories: bool) -> list[tuple[Kept, str, State]]:
    what = Kept.HISTORIES if histories else Kept.JOBS
    return [check_rule(what, queue, check_state(state)) for state in states or TERMINAL]


def _show(session: Session, store: SqlStore) -> None:
    rules = store.retention_rules().in_force()
    retired = store.histories_retired()
    last = {turn.name: turn for turn in store.turns() if turn.name in CHORES.values()}
    if session.json:
        output.document(
            {"rules": [_rule(rule) for rule in rules], "last_runs": list(last.values()), "retired": retired}
        )
        return
    output.table(
        ("kind", "queue", "state", "kept for", ""),
        [(r.what, r.queue, r.state, _keep(r.keep_seconds), "set" if r.updated_at else "default") for r in rules],
    )
    now = datetime.now(UTC)
    for name, turn in last.items():
        output.line(f"{name}: last begun {age(turn.ticked_at, now)} by {turn.holder}")
    if retired is not None:
        through = iso(retired.through)
        output.line(f"Retired so far: the histories of {retired.jobs:,} jobs, pruned up to {through}.")


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "what": rule.what,
        "queue": rule.queue,
        "state": rule.state,
        "keep_seconds": rule.keep_seconds,
        "default": rule.updated_at is None,
        "updated_at": rule.updated_at,
    }


def _keep(seconds: float | None) -> str:
    return FOREVER if seconds is None else span(seconds) if seconds else "0 s"


def _print_preview(preview: list[Preview]) -> None:
    if not preview:
        output.line("There is nothing to remove.")
        return
    now = datetime.now(UTC)
    headers = ("kind", "queue", "state", "kept for", "count", "events", "oldest")
    rows = [
        (p.what, p.queue, p.state, _keep(p.keep_seconds), _count(p), p.events or None, age(p.oldest_at, now))
        for p in preview
    ]
    output.table(headers, rows)


def _count(preview: Preview) -> str:
    return f"{preview.count:,}" if preview.counted else f"{preview.count:,} or more"


def _remove(store: SqlStore, preview: list[Preview], silent: bool) -> dict[str, int]:
    """Histories first: those of jobs that are pruned now have their own time before them."""
    from holdfast.maintenance.retention import Retention

    retention = Retention(lambda: store)
    parts = {"histories": retention.histories, "jobs": retention.jobs, "leftovers": retention.leftovers}
    removed = dict.fromkeys(parts, 0)
    for name, steps in parts.items():
        # From a worker, if one has it: it need not do the same at the same time, though it could.
        store.take_turn(CHORES[name], f"holdfast retention run ({os.getpid()})", 0.0)
        total, counted = _expected(name, preview)
        with shown(f"removing {name}", silent=silent) as told:
            for count in _paced(steps()):
                removed[name] += count
                told.told(removed[name], total, counted)
    return removed


def _expected(name: str, preview: list[Preview]) -> tuple[int | None, bool]:
    """How many there will be, and whether they were all counted. Leftovers are known only when they are gone."""
    groups = [group for group in preview if group.what == name]
    if name not in list(Kept):
        return None, False
    return sum(group.count for group in groups), all(group.counted for group in groups)


def _paced(steps: Iterator[int]) -> Iterator[int]:
    """Leave the store to the others for as long as each batch took."""
    while True:
        began = time.monotonic()
        count = next(steps, None)
        if count is None:
            return
        yield count
        time.sleep(min(1.0, time.monotonic() - began))
