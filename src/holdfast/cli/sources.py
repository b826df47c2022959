"""`holdfast sources`, and `holdfast sources set NAME`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.limits import number, whole_number
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.errors import InvalidInput
from holdfast.domain.views import SourceView


def list_sources(context: typer.Context, json: Json = False) -> None:
    session = begin(context, json)
    if context.invoked_subcommand is not None:
        context.obj = session  # `sources --json set NAME`
        return
    with opened(session.settings()) as store:
        sources = store.sources()
    if session.json:
        output.document({"sources": sources})
    elif sources:
        _print(sources)
    else:
        output.remark("No source has limits.")


def set_source(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    max_concurrent: Annotated[
        str | None, typer.Option(metavar="N|none", help="How many of its jobs may run at once.")
    ] = None,
    rate_limit_per_minute: Annotated[
        str | None, typer.Option(metavar="N|none", help="How many may start in a minute.")
    ] = None,
    burst: Annotated[int | None, typer.Option(metavar="N", help="How many may start together after a calm.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Disabled: its jobs wait, and nothing is charged.")
    ] = None,
    json: Json = False,
) -> None:
    """Change the limits that are named, and no others. They hold for the whole fleet, at once."""
    session = begin(context, json)
    changes: dict[str, Any] = {}
    if max_concurrent is not None:
        changes["max_concurrent"] = whole_number(max_concurrent, "max_concurrent")
    if rate_limit_per_minute is not None:
        changes["rate_limit_per_minute"] = number(rate_limit_per_minute, "rate_limit_per_minute")
    changes |= {field: value for field, value in (("burst", burst), ("enabled", enabled)) if value is not None}
    if not changes:
        raise InvalidInput("limits", "name at least one to set, such as --max-concurrent 2")
    with opened(session.settings(), create=True) as store:
        source = store.set_source(name, **changes)
    if session.json:
        output.document(source)
    else:
        _print([source])


def _print(sources: list[SourceView]) -> None:
    now = datetime.now(UTC)
    headers = ("source", "at once", "per minute", "burst", "failures in a row", "last success", "last failure", "")
    output.table(
        headers,
        [
            (
                s.name,
                s.max_concurrent,
                None if s.rate_limit_per_minute is None else f"{s.rate_limit_per_minute:g}",
                s.burst,
                s.failure_streak,
                age(s.last_success_at, now),
                age(s.last_failure_at, now),
                _standing(s, now),
            )
            for s in sources
        ],
    )


def _standing(source: SourceView, now: datetime) -> str | None:
    if not source.enabled:
        return "disabled"
    if source.paused_until is not None and source.paused_until > now:
        return f"closed by its breaker, opens {age(source.paused_until, now)}"
    return None
