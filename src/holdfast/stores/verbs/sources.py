"""Sources: what is known of them, and changing it.

Every change is one row in holdfast_source_events, with what is new and, under `before`, what it was; where nothing
changes there is none. A change waits for the row, and holds no other while it does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.admission import SourceStanding
from holdfast.domain.breaker import Happened, Standing
from holdfast.domain.errors import NotFound
from holdfast.domain.jsonable import to_json
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.sources import (
    DEFAULTS,
    PausedBy,
    SourceDeclaration,
    check_declaration,
    check_limits,
    understood,
)
from holdfast.domain.spec import encode_json
from holdfast.domain.views import Page, SourceEvent, SourceView
from holdfast.stores import rows
from holdfast.stores.database import Database, Row, Transaction
from holdfast.stores.statements import sources as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text
from holdfast.stores.verbs.breaker import codes, record, who_paused

MOST_EVENTS = 1_000
MOST_COUNTED = 10_000
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_LISTS = ("breaker_only", "breaker_ignores")
_TIMES = ("paused_until", "last_success_at", "last_failure_at")
_NUMBERS = (
    "rate_limit_per_minute",
    "burst",
    "max_concurrent",
    "failure_streak",
    "breaker_threshold",
    "breaker_pause_seconds",
    "bucket_level",
)


def set_source(database: Database, name: str, changes: Mapping[str, Any]) -> SourceView:
    """Create the source if need be, change just the limits that are named, and record the change. A mere pause makes no
    source: whoever mistypes a name should hear of it."""
    check_name(name, "source")
    wanted = check_limits(changes)
    with database.transaction() as transaction:
        if set(wanted) == {"paused_for"} and not transaction.rows(sql.EXISTS, {"name": name}):
            raise _no_source(name)
        created, known = _locked(transaction, name)
        if "paused_for" in wanted:
            wanted["paused_until"] = known["now"] + timedelta(seconds=wanted.pop("paused_for"))
        changed = _differing(known, wanted)
        if changed or created or known["odd"]:
            _write(transaction, known, changed)
            record(transaction, name, Happened(_event_of(changed), _detail(known, changed, created)))
        return _view(transaction, name)


def resume(database: Database, name: str) -> SourceView:
    check_name(name, "source")
    with database.transaction() as transaction:
        found = transaction.rows(sql.LOCK, {"name": name})
        if not found:
            raise _no_source(name)
        known = _known(found[0], transaction.dialect)
        changed = _differing(known, {"paused_until": None, "failure_streak": 0})
        if changed or known["odd"]:
            _write(transaction, known, changed)
            record(transaction, name, Happened("resumed", _detail(known, changed)))
        return _view(transaction, name)


def announce(database: Database, declared: Sequence[SourceDeclaration]) -> None:
    checked = {d.name: d.limits for d in map(check_declaration, declared)}
    if not checked:
        return
    with database.reading() as transaction:
        said = {name: _declared(stored, database.dialect) for name, stored in transaction.rows(sql.DECLARED)}
    for name in sorted(checked):
        if said.get(name) != to_json(checked[name]):
            with database.transaction() as transaction:
                _declare(transaction, name, checked[name])


def _declare(transaction: Transaction, name: str, limits: dict[str, Any]) -> None:
    """Of each limit: what code says anew counts, what it says as before leaves an operator's word alone, and what it
    says no more is as if nobody had ever said it."""
    created, known = _locked(transaction, name)
    before, now = known["declared"] or {}, to_json(limits)
    if known["declared"] == now:  # another worker was faster
        return
    wanted = {field: DEFAULTS[field] for field in before if field not in limits and field in DEFAULTS}
    wanted |= {field: value for field, value in limits.items() if field not in before or before[field] != now[field]}
    changed = _differing(known, wanted)
    _write(transaction, known, {**changed, "declared": now})
    record(transaction, name, Happened("declared", _detail(known, changed, created)))


def views(database: Database) -> list[SourceView]:
    with database.reading() as transaction:
        found = transaction.rows(sql.VIEWS, {"most": MOST_COUNTED + 1})
        return [source_view(row, transaction.dialect) for row in found]


def view(database: Database, name: str) -> SourceView:
    check_name(name, "source")
    with database.reading() as transaction:
        return _view(transaction, name)


def _view(transaction: Transaction, name: str) -> SourceView:
    found = transaction.rows(sql.VIEW, {"name": name, "most": MOST_COUNTED + 1})
    if not found:
        raise _no_source(name)
    return source_view(found[0], transaction.dialect)


def events(database: Database, source: str | None, limit: int, after: str | None) -> Page[SourceEvent]:
    check_integer(limit, "limit", 1, MOST_EVENTS)
    before = _LAST_ID if after is None else check_id(after, "after")
    given: dict[str, Any] = {"before": before, "limit": limit + 1}
    if source is not None:
        given["source"] = check_name(source, "source")
    with database.reading() as transaction:
        found = transaction.rows(sql.EVENTS if source is None else sql.EVENTS_OF, given)
    page = [_event(row, database.dialect) for row in found[:limit]]
    # Ids are made where the change is made; the store's clock tells the order of those from several machines.
    newest_first = sorted(page, key=lambda event: (event.at, event.id), reverse=True)
    return Page(tuple(newest_first), page[-1].id if len(found) > limit else None)


def _event(row: Row, dialect: str) -> SourceEvent:
    event_id, source, at, event, detail = row
    moment = rows.moment(at)
    assert moment is not None
    return SourceEvent(event_id, source, moment, event, rows.parsed(detail, dialect))


def _no_source(name: str) -> NotFound:
    return NotFound(f"there is no source {name}; `holdfast sources set {shlex.quote(name)} --rate 100/m` makes one")


# a source's row, and what changes in it


def _locked(transaction: Transaction, name: str) -> tuple[bool, dict[str, Any]]:
    """Whether it was made just now, and how it is."""
    created = bool(transaction.rows(sql.CREATE, {"name": name}))
    return created, _known(transaction.rows(sql.LOCK, {"name": name})[0], transaction.dialect)


def _known(row: Row, dialect: str) -> dict[str, Any]:
    """As it can be worked with; and under `odd` what was not so, because somebody typed it by hand before the database
    refused that. Whoever changes the source next sets it right."""
    stored = dict(zip(("name", *sql.STANDING, "elapsed", "now"), row, strict=True))
    known = {**stored, **{field: understood(field, stored[field]) for field in _NUMBERS}}
    odd = {field: known[field] for field in _NUMBERS if stored[field] is not None and known[field] != stored[field]}
    for field in _TIMES:
        known[field] = rows.some_moment(stored[field])
        if isinstance(stored[field], str) and (known[field] is None or to_text(known[field]) != stored[field]):
            odd[field] = known[field]
    known["now"] = rows.moment(stored["now"])
    if not isinstance(stored["elapsed"], int | float):
        known["elapsed"] = 0.0
        odd["bucket_level"] = known["bucket_level"]
    known["odd"] = odd
    known |= {field: codes(known[field], dialect) for field in _LISTS}
    known["breaker_ignores"] = known["breaker_ignores"] or ()
    known["enabled"] = bool(known["enabled"])
    known["breaker_counts_permanent"] = bool(known["breaker_counts_permanent"])
    known["declared"] = _declared(known["declared"], dialect)
    return known


def _declared(stored: Any, dialect: str) -> dict[str, Any] | None:
    """What nobody can read was not declared."""
    try:
        said = rows.parsed(stored, dialect)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _differing(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in wanted.items() if known[field] != value}


def _write(transaction: Transaction, known: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    columns = {**known["odd"], **changed}
    if "paused_until" in changed:
        columns["paused_by"] = None if changed["paused_until"] is None else str(PausedBy.OPERATOR)
    level = _bucket(known).level
    if level is not None and not {"rate_limit_per_minute", "burst"}.isdisjoint(changed):
        # What was saved up until now was saved up at the old rate.
        columns["bucket_level"] = min(level, float(changed.get("burst", known["burst"])))
    if columns:
        stored = {field: _stored(field, value, transaction.dialect) for field, value in columns.items()}
        transaction.run(sql.change(tuple(sorted(columns))), {"name": known["name"], **stored})


def _stored(field: str, value: Any, dialect: str) -> Any:
    if field == "breaker_ignores" and not value:
        return None
    if field in (*_LISTS, "declared"):
        return None if value is None else encode_json(to_json(value))
    if field in _TIMES and value is not None:
        return to_text(value) if dialect == SQLITE else value
    return value


def _event_of(changed: Mapping[str, Any]) -> str:
    if set(changed) == {"paused_until"}:
        return "resumed" if changed["paused_until"] is None else "paused"
    return "limits_changed"


def _detail(known: Mapping[str, Any], changed: Mapping[str, Any], created: bool = False) -> dict[str, Any]:
    if created:
        return {**changed, "created": True}
    before = {field: known[field] for field in changed}
    if "paused_until" in changed:
        before["paused_by"] = known["paused_by"]
    repaired = {"repaired": sorted(known["odd"])} if known["odd"] else {}
    return {**changed, "before": before, **repaired}


def _bucket(known: Mapping[str, Any]) -> SourceStanding:
    return SourceStanding(
        name=known["name"],
        max_concurrent=known["max_concurrent"],
        rate_limit_per_minute=known["rate_limit_per_minute"],
        burst=known["burst"],
        bucket_level=known["bucket_level"],
        seconds_since=known["elapsed"],
        half_open=False,
    )


def source_view(row: Row, dialect: str) -> SourceView:
    *standing, in_use, waiting = row
    known = _known(standing, dialect)
    paused_by = who_paused(known["paused_by"])
    breaker = Standing(known["failure_streak"], known["paused_until"], paused_by)
    return SourceView(
        name=known["name"],
        enabled=known["enabled"],
        rate_limit_per_minute=known["rate_limit_per_minute"],
        burst=known["burst"],
        max_concurrent=known["max_concurrent"],
        failure_streak=known["failure_streak"],
        last_success_at=known["last_success_at"],
        last_failure_at=known["last_failure_at"],
        paused_until=known["paused_until"],
        paused_by=None if paused_by is None else str(paused_by),
        breaker=breaker.breaker(known["breaker_threshold"], known["now"]),
        breaker_threshold=known["breaker_threshold"],
        breaker_pause_seconds=float(known["breaker_pause_seconds"]),
        breaker_only=known["breaker_only"],
        breaker_ignores=known["breaker_ignores"],
        breaker_counts_permanent=known["breaker_counts_permanent"],
        level=_bucket(known).level,
        in_use=int(in_use),
        waiting=min(int(waiting), MOST_COUNTED),
        waiting_at_least=int(waiting) > MOST_COUNTED,
    )
