"""Declare, change and look at schedules.

What code declares and what operators change are kept apart: `declared` and `overrides`. What is in effect, one over the
other, is written out in the other columns, so that whoever fires need not know of either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable, is_away
from holdfast.domain.job import Enqueued
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.schedule import Declaration, Schedule, ScheduleFailure, Tick, overridden
from holdfast.stores.database import CursorTransaction, Database
from holdfast.stores.statements import schedules as sql
from holdfast.stores.verbs import enqueueing, schedule_rows
from holdfast.stores.verbs.firing import defaults_of

BUSY_TRIES = 7
MOST_TICKS = 10_000
CHANGEABLE = (
    "cron",
    "every_seconds",
    "timezone",
    "job",
    "misfire",
    "misfire_limit",
    "misfire_grace_seconds",
    "tick_argument",
)

Change = Callable[[Schedule, datetime], Schedule]


def announce(database: Database, declared: Sequence[Declaration]) -> tuple[ScheduleFailure, ...]:
    """What the code of a worker says when it starts: missing schedules are made, those that differ follow. One that
    cannot (what an operator changed does not go with it any more) stays as it is and is told of."""
    if not declared:
        return ()
    with database.reading() as transaction:
        known: dict[str, str | None] = {row[0]: row[1] for row in transaction.rows(sql.DECLARED)}
    failures = []
    unknown: StoreUnavailable | None = None
    for item in sorted(declared, key=lambda item: item.name):
        if known.get(item.name) == schedule_rows.declaration_text(item.to_json()):
            continue
        try:
            _announce(database, item)
        except StoreUnavailable as error:
            if is_away(error):
                raise
            unknown = unknown or error
        except Exception as error:  # one that is broken must not keep the others, or the worker, from their work
            failures.append(ScheduleFailure(item.name, f"{type(error).__name__}: {error}"))
    touch(database, declared)
    if unknown is not None:  # it may be transient: the caller announces all again
        raise unknown
    return tuple(failures)


def _announce(database: Database, declaration: Declaration) -> None:
    if not _insert(database, _declared(declaration)):
        _change(database, declaration.name, lambda schedule, now: _redeclared(schedule, declaration, now))


def touch(database: Database, declared: Sequence[Declaration]) -> None:
    """They are still declared. What differs stays: two releases that run side by side must not take turns."""
    if not declared:
        return
    values = [{"name": item.name, "declared": schedule_rows.declaration_text(item.to_json())} for item in declared]
    with database.statement() as transaction:
        transaction.run(sql.TOUCH, {"rows": schedule_rows.encode_rows(values, database.dialect)})


def schedules(database: Database) -> list[Schedule]:
    """Those that can be read; see `unreadable`."""
    return [found for found in _all(database) if isinstance(found, Schedule)]


def unreadable(database: Database) -> list[ScheduleFailure]:
    """Those whose rows hold what somebody has typed there and nobody can read, with what to do about it."""
    return [found for found in _all(database) if isinstance(found, ScheduleFailure)]


def _all(database: Database) -> Iterator[Schedule | ScheduleFailure]:
    with database.reading() as transaction:
        found = transaction.rows(sql.ALL, {"name": None})
    for row in found:
        try:
            yield schedule_rows.schedule(row)
        except Conflict as error:
            yield ScheduleFailure(str(row[0]), error.rule)


def schedule(database: Database, name: str) -> Schedule:
    with database.reading() as transaction:
        found = transaction.rows(sql.ALL, {"name": check_name(name, "name")})
    if not found:
        raise _missing(name)
    return schedule_rows.schedule(found[0])


def ticks(database: Database, name: str, limit: int) -> list[Tick]:
    """The newest, newest first; also of a schedule that was removed."""
    check_integer(limit, "limit", 1, MOST_TICKS)
    with database.reading() as transaction:
        found = transaction.rows(sql.TICKS, {"name": check_name(name, "name"), "limit": limit})
    return [schedule_rows.tick(row, database.dialect) for row in found]


def add(database: Database, wanted: Declaration) -> Schedule:
    """An operator's own: nothing is declared, and all of it may be changed."""

    def make(now: datetime) -> Schedule:
        return replace(_blank(wanted, now), overrides=wanted.to_json()).planned_after(now)

    if not _insert(database, make):
        raise Conflict("name", f"there is a schedule {wanted.name} already; change it with set, or choose another name")
    return schedule(database, wanted.name)


def change(database: Database, name: str, changes: Mapping[str, Any]) -> Schedule:
    for key in changes:
        if key not in CHANGEABLE:
            raise InvalidInput(key, f"cannot be changed; what can is {', '.join(CHANGEABLE)}")

    def changed(schedule: Schedule, now: datetime) -> Schedule:
        overrides = overridden(schedule.overrides, changes)
        wanted = Declaration.from_json(name, overridden(schedule.declared or {}, overrides))
        return replace(schedule, overrides=overrides).following(wanted, now)

    return _change(database, name, changed)


def reset(database: Database, name: str) -> Schedule:
    def as_declared(schedule: Schedule, now: datetime) -> Schedule:
        if schedule.declared is None:
            raise Conflict("name", f"{name} was made by an operator: code says nothing of it that it could go back to")
        wanted = Declaration.from_json(name, schedule.declared)
        return replace(schedule, overrides={}).following(wanted, now)

    return _change(database, name, as_declared)


def pause(database: Database, name: str) -> Schedule:
    return _change(database, name, lambda schedule, now: replace(schedule, paused_at=schedule.paused_at or now))


def resume(database: Database, name: str) -> Schedule:
    """From now on: what would have been due meanwhile was not missed, it was not wanted."""

    def resumed(schedule: Schedule, now: datetime) -> Schedule:
        return schedule if schedule.paused_at is None else replace(schedule, paused_at=None).planned_after(now)

    return _change(database, name, resumed)


def remove(database: Database, name: str) -> bool:
    """Its ticks stay: should it come back, no instant fires again. Answers whether code had declared it."""
    check_name(name, "name")
    for _ in _tries(name):
        with database.transaction() as transaction:
            removed = transaction.rows(sql.REMOVE, {"name": name})
            if removed:
                return removed[0][0] is not None  # and is not read: it may be what is wrong with it
            if not transaction.rows(sql.PRESENT, {"name": name}):
                raise _missing(name)
    raise AssertionError("the tries end with an error")


def run_now(database: Database, name: str, lease_seconds: float) -> Enqueued:
    """A job of it, due at once; no tick, and the next one stays as planned. Also while it is paused."""
    found = schedule(database, name)
    with database.reading() as transaction:
        now = schedule_rows.store_now(transaction)
    job = found.job_at(now, defaults_of(database, found, lease_seconds))
    return enqueueing.enqueue(database, [job])[0]


# one schedule's row


def _insert(database: Database, make: Callable[[datetime], Schedule]) -> bool:
    with database.transaction() as transaction:
        made = make(schedule_rows.store_now(transaction))
        if transaction.rows(sql.PRESENT, {"name": made.name}):
            return False
        return bool(transaction.rows(sql.INSERT, schedule_rows.parameters(made, database.dialect)))


def _change(database: Database, name: str, change: Change) -> Schedule:
    """Read it under its lock, change it, write it; nothing is written when nothing changed."""
    check_name(name, "name")
    for _ in _tries(name):
        with database.transaction() as transaction:
            found = transaction.rows(sql.LOCKED, {"name": name})
            if found:
                return _write(transaction, schedule_rows.schedule(found[0]), change)
            if not transaction.rows(sql.PRESENT, {"name": name}):
                raise _missing(name)
    raise AssertionError("the tries end with an error")


def _write(transaction: CursorTransaction, found: Schedule, change: Change) -> Schedule:
    now = schedule_rows.store_now(transaction)
    changed = change(found.in_time(now), now)
    if changed == found:
        return found
    transaction.run(sql.CHANGE, schedule_rows.parameters(changed, transaction.dialect))
    [row] = transaction.rows(sql.ALL, {"name": found.name})
    return schedule_rows.schedule(row)


def _tries(name: str) -> Iterator[int]:
    """Nobody waits for a row lock: whoever finds one asks again for a while."""
    for tried in range(BUSY_TRIES):
        if tried:
            time.sleep(0.002 * 2**tried)
        yield tried
    raise StoreUnavailable(f"schedule {name} stayed locked by somebody's transaction; ask again")


def _declared(declaration: Declaration) -> Callable[[datetime], Schedule]:
    def make(now: datetime) -> Schedule:
        blank = _blank(declaration, now)
        return replace(blank, declared=declaration.to_json(), declared_at=now).planned_after(now)

    return make


def _redeclared(schedule: Schedule, declaration: Declaration, now: datetime) -> Schedule:
    declared = declaration.to_json()
    wanted = Declaration.from_json(schedule.name, overridden(declared, schedule.overrides))
    return replace(schedule, declared=declared, declared_at=now).following(wanted, now)


def _blank(wanted: Declaration, now: datetime) -> Schedule:
    return Schedule(
        name=wanted.name,
        **wanted.to_json(),
        anchor_at=now,
        declared=None,
        declared_at=None,
        overrides={},
        paused_at=None,
        next_at=None,
        last_at=None,
        revision=1,
        created_at=now,
        updated_at=now,
    )


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name}")
