"""`holdfast sources`, and `set`, `pause`, `resume`, `events` and `clear-cache` below it"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.limits import names, number, unless_none, whole_number
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput
from holdfast.domain.jsonable import iso
from holdfast.domain.names import check_name
from holdfast.domain.sources import Breaker, check_limits
from holdfast.domain.spec import encode_json
from holdfast.domain.views import SourceView
from holdfast.wiring.cache import open_cache

Name = Annotated[str, typer.Argument(metavar="NAME")]


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
    name: Name,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE|none", help='How many may start: "5/s", "100/m", "1000/h", "1/d".')
    ] = None,
    rate_limit_per_minute: Annotated[
        str | None, typer.Option(metavar="N|none", help="The same as a number a minute.")
    ] = None,
    burst: Annotated[int | None, typer.Option(metavar="N", help="How many may start together after a calm.")] = None,
    max_concurrent: Annotated[
        str | None, typer.Option(metavar="N|none", help="How many of its jobs may run at once.")
    ] = None,
    breaker_threshold: Annotated[
        int | None, typer.Option(metavar="N", help="After so many failures in a row its breaker opens.")
    ] = None,
    breaker_pause: Annotated[str | None, typer.Option(metavar="TIME", help="For how long: 30s, 5m.")] = None,
    breaker_only: Annotated[
        str | None, typer.Option(metavar="CODES|none", help="Only errors with these codes count: TimeoutError,OSError.")
    ] = None,
    breaker_ignores: Annotated[
        str | None, typer.Option(metavar="CODES|none", help="Errors with these codes do not count.")
    ] = None,
    count_permanent: Annotated[
        bool | None, typer.Option("--count-permanent/--no-count-permanent", help="Whether permanent failures count.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Disabled: its jobs wait, and nothing is charged.")
    ] = None,
    json: Json = False,
) -> None:
    """Change the limits that are named, and no others. They hold for the whole fleet, at once."""
    session = begin(context, json)
    changes: dict[str, Any] = {}
    if rate is not None:
        changes["rate"] = unless_none(rate)
    if rate_limit_per_minute is not None:
        changes["rate_limit_per_minute"] = number(rate_limit_per_minute, "rate_limit_per_minute")
    if max_concurrent is not None:
        changes["max_concurrent"] = whole_number(max_concurrent, "max_concurrent")
    if breaker_only is not None:
        changes["breaker_only"] = names(breaker_only)
    if breaker_ignores is not None:
        changes["breaker_ignores"] = names(breaker_ignores)
    given = {
        "burst": burst,
        "breaker_threshold": breaker_threshold,
        "breaker_pause_seconds": None if breaker_pause is None else durations.seconds(breaker_pause, "breaker_pause"),
        "breaker_counts_permanent": count_permanent,
        "enabled": enabled,
    }
    changes |= {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput("limits", "name at least one to set, such as --rate 100/m or --max-concurrent 2")
    _set(session, name, changes)


def pause(
    context: typer.Context,
    name: Name,
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="For how long: 30s, 10m, 2h.")],
    json: Json = False,
) -> None:
    """Let no job of a source start for a while. Those that run go on."""
    session = begin(context, json)
    seconds = durations.seconds(lasting, "for")
    if seconds <= 0:
        raise InvalidInput("for", "must be more than zero; `holdfast sources resume` ends a pause")
    _set(session, name, {"paused_for": seconds})


def resume(context: typer.Context, name: Name, json: Json = False) -> None:
    """End its pause, whoever paused it, and close its breaker."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        _show(store.resume_source(name), session.json)


def events(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, the newest first.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on behind this one.")] = None,
    json: Json = False,
) -> None:
    """What happened to the sources: limits that were changed, breakers that opened and closed."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        page = store.source_events(name, limit, after)
        if name is not None and not page.items:
            store.source(name)  # of one that is not there, nothing can have happened
    if session.json:
        output.document({"events": page.items, "after": page.after})
    elif page.items:
        output.table(
            ("at", "source", "event", "detail"),
            [(iso(e.at), e.source, e.event, None if not e.detail else encode_json(e.detail)) for e in page.items],
        )
        if page.after is not None:
            output.remark(f"There are more: --after {page.after}")
    else:
        output.remark("Nothing has happened.")


def clear_cache(
    context: typer.Context,
    name: Name,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only what is kept under this key.")] = None,
    json: Json = False,
) -> None:
    """Forget what a source answered: the next job that wants it asks the source itself."""
    session = begin(context, json)
    settings = session.settings()
    with opened(settings) as store, closing(open_cache(settings.cache_url, lambda: store)) as cache:
        cleared = cache.store().clear_cache(name, key)
    if session.json:
        output.document({"cleared": cleared})
    else:
        output.line(f"{cleared:,} {'answer' if cleared == 1 else 'answers'} forgotten.")


def _set(session: Session, name: str, changes: dict[str, Any]) -> None:
    """What is refused makes no file."""
    check_name(name, "source")
    check_limits(changes)
    with opened(session.settings(), create=True) as store:
        _show(store.set_source(name, **changes), session.json)


def _show(source: SourceView, as_json: bool) -> None:
    if as_json:
        output.document(source)
    else:
        _print([source])


def _print(sources: list[SourceView]) -> None:
    now = datetime.now(UTC)
    headers = (
        "source",
        "state",
        "level",
        "rate",
        "at once",
        "waiting",
        "streak",
        "last success",
        "last failure",
        "paused until",
    )
    output.table(headers, [_row(source, now) for source in sources])


def _row(source: SourceView, now: datetime) -> tuple[object, ...]:
    return (
        source.name,
        _state(source, now),
        "-" if source.level is None else f"{source.level:.3g}/{source.burst}",
        "-" if source.rate_limit_per_minute is None else f"{source.rate_limit_per_minute:g}/m",
        f"{source.in_use}/{'-' if source.max_concurrent is None else source.max_concurrent}",
        f"{source.waiting:,}{'+' if source.waiting_at_least else ''}",
        f"{source.failure_streak}/{source.breaker_threshold}",
        age(source.last_success_at, now) or "never",
        age(source.last_failure_at, now) or "never",
        _pause(source, now),
    )


def _state(source: SourceView, now: datetime) -> str:
    if not source.enabled:
        return "disabled"
    if source.breaker is not Breaker.CLOSED:
        return f"breaker {str(source.breaker).replace('_', ' ')}"
    return "paused" if _is_paused(source, now) else "ok"  # a breaker that is closed reads as a shop that is


def _pause(source: SourceView, now: datetime) -> str | None:
    if source.paused_until is None or not _is_paused(source, now):
        return None
    by = (source.paused_by or "somebody").replace("_", "-")
    return f"{iso(source.paused_until)}, {age(source.paused_until, now)} (by {by})"


def _is_paused(source: SourceView, now: datetime) -> bool:
    return source.paused_until is not None and source.paused_until > now
