"""`holdfast records`, `show` and `delete`"""

from __future__ import annotations

import json as json_text
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.confirm import confirm
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.errors import InvalidInput
from holdfast.domain.jsonable import iso
from holdfast.domain.record import Record
from holdfast.domain.views import Page

LISTED = 50
LONGEST_SHOWN = 120
MOST_COUNTED = 1_000

Source = Annotated[str | None, typer.Option(metavar="SOURCE", help="Only of this source.")]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only under this dedupe key.")]


def list_records(
    context: typer.Context,
    scope: Annotated[str | None, typer.Option(metavar="SCOPE", help="Only of this scope.")] = None,
    source: Source = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only what this job wrote.")] = None,
    key: Key = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many, up to 1000; else 50.")] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this record.")] = None,
    json: Json = False,
) -> None:
    """The records that jobs wrote, newest first. Exit code 1 when there is none."""
    session = begin(context, json)
    if context.invoked_subcommand is not None:
        if any(value is not None for value in (scope, source, job, key, limit, after)):
            raise InvalidInput(
                "records", f"name what is meant behind the command: records {context.invoked_subcommand} …"
            )
        context.obj = session  # `records --json show ID`
        return
    with opened(session.settings()) as store:
        most = LISTED if limit is None else limit
        page = store.records(scope=scope, source=source, job_id=job, dedupe_key=key, limit=most, after=after)
    if session.json:
        output.document({"records": page.items, "after": page.after})
    elif page.items:
        _print(page)
    else:
        output.remark("There is no such record.")
    if not page.items:
        raise typer.Exit(1)


def show(context: typer.Context, record_id: Annotated[str, typer.Argument(metavar="ID")], json: Json = False) -> None:
    """All of one record."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        record = store.record(record_id)
    if session.json:
        output.document(record)
        return
    names = ("id", "scope", "source", "dedupe_key", "external_id", "strength", "job_id", "attempt")
    facts: list[tuple[str, object]] = [(name.replace("_", " "), getattr(record, name)) for name in names]
    output.facts([*facts, ("created", iso(record.created_at)), ("updated", iso(record.updated_at))])
    output.line(json_text.dumps(record.data, ensure_ascii=False, indent=2))


def delete(
    context: typer.Context,
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="Of this scope.")],
    source: Source = None,
    key: Key = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete the records of a scope, or some of them. Nothing of them stays."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        found = store.records(scope=scope, source=source, dedupe_key=key, limit=MOST_COUNTED)
        deleted = 0
        if found.items:
            confirm(f"Delete {_count(found)} of scope {scope!r}?", yes)
            deleted = store.delete_records(scope, source, key)
    if session.json:
        output.document({"deleted": deleted})
    else:
        output.line(f"{deleted:,} records deleted.")


def _count(page: Page[Record]) -> str:
    count = len(page.items)
    noun = "record" if count == 1 else "records"
    return f"{'more than ' if page.after else ''}{count:,} {noun}"


def _print(page: Page[Record]) -> None:
    now = datetime.now(UTC)
    headers = ("id", "scope", "source", "key", "strength", "updated", "data")
    rows = [
        (r.id, r.scope, r.source, r.dedupe_key, f"{r.strength:g}", age(r.updated_at, now), _short(r.data))
        for r in page.items
    ]
    output.table(headers, rows)
    if page.after:
        output.remark(f"There are more: --after {page.after}")


def _short(data: Any) -> str:
    text = json_text.dumps(data, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
