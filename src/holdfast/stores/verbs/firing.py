"""Fire what is due. Any number of processes may do this at any time; each tick fires once.

To look costs one statement that only reads. A schedule that is due then has a transaction of its own: advance it (the
compare-and-set that picks one winner), insert its ticks (whose key is what makes an instant fire once in all time), and
enqueue the jobs of those ticks that were not there. A crash before the commit leaves nothing, and the next who looks
finds the schedule still due. A schedule that cannot fire is told of, and keeps no other from firing.

A schedule that was planned while the store's clock was ahead is planned again, from now, by the same compare-and-set;
what has fired meanwhile has its ticks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain import manifest
from holdfast.domain.errors import is_away
from holdfast.domain.job import Enqueued
from holdfast.domain.names import check_name
from holdfast.domain.schedule import Fired, Firing, Outcome, Schedule, ScheduleFailure, Tick, due
from holdfast.stores.database import CursorTransaction, Database, Row
from holdfast.stores.statements import schedules as sql
from holdfast.stores.statements.words import POSTGRES, SQLITE
from holdfast.stores.verbs import announcing, schedule_rows
from holdfast.stores.verbs.enqueueing import enqueue_in

PAGE = 100
ASK_AGAIN = timedelta(seconds=1)
LOOK_AGAIN = timedelta(seconds=5)  # where it cannot be read when the next one is due
_LOCK_NOT_AVAILABLE = "55P03"


def fire_schedules(database: Database, holder: str, lease_seconds: float) -> Fired:
    check_name(holder, "holder")
    ticks: list[Tick] = []
    failures: list[ScheduleFailure] = []
    upcoming: list[datetime] = []
    now: datetime | None = None
    for now_, next_at, due_rows in _pages(database):
        now = now_
        upcoming += [] if next_at is None else [next_at]
        for row in due_rows:
            try:
                ticks_, after = _fire(database, row, now, holder, lease_seconds)
            except Exception as error:  # an error of one schedule must not keep the others from firing
                if _is_key_being_taken(error):
                    upcoming.append(now + ASK_AGAIN)
                    continue
                if is_away(error):
                    raise
                failures.append(ScheduleFailure(str(row[0]), f"{type(error).__name__}: {error}"))
                continue
            ticks += ticks_
            upcoming += [] if after is None else [after]
    seconds = max(0.0, (min(upcoming) - now).total_seconds()) if upcoming and now else None
    return Fired(tuple(ticks), tuple(failures), seconds)


def _pages(database: Database) -> Iterator[tuple[datetime, datetime | None, list[Row]]]:
    """By keyset, so that those which cannot fire never hide those behind them."""
    after_at: Any = "" if database.dialect == SQLITE else "-infinity"
    after_name = ""
    next_at_place = tuple(sql.COLUMNS).index("next_at")
    while True:
        with database.reading() as transaction:
            found = transaction.rows(sql.DUE, {"after_at": after_at, "after_name": after_name, "page": PAGE})
        now, page = schedule_rows.utc(found[0][0]), [row[2:] for row in found if row[2] is not None]
        yield now, _earliest(found[0][1], now), page
        if len(page) < PAGE:
            return
        after_at, after_name = page[-1][next_at_place], page[-1][0]


def _earliest(value: Any, now: datetime) -> datetime | None:
    try:
        return None if value is None else schedule_rows.utc(value)
    except (ValueError, OverflowError):
        return now + LOOK_AGAIN


def _fire(
    database: Database, row: Row, now: datetime, holder: str, lease_seconds: float
) -> tuple[list[Tick], datetime | None]:
    schedule = schedule_rows.schedule(row)
    firing = due(schedule, now)
    defaults = defaults_of(database, schedule, lease_seconds)
    with database.transaction() as transaction:
        if not _advance(transaction, schedule, row, firing, now):
            return [], firing.next_at  # somebody else has it, who leaves it like this
        planned = [Tick(schedule.name, instant, now, Outcome.FIRED, None, holder) for instant in firing.fire]
        if firing.left_out is not None:
            detail = firing.left_out.detail()
            planned.append(
                Tick(schedule.name, firing.left_out.last, now, Outcome.SKIPPED, None, holder, detail),
            )
        fresh = _insert_ticks(transaction, planned)
        return _with_jobs(transaction, schedule, fresh, defaults), firing.next_at


def _advance(transaction: CursorTransaction, schedule: Schedule, row: Row, firing: Firing, now: datetime) -> bool:
    dialect = transaction.dialect
    last_at = firing.fire[-1] if firing.fire else schedule.in_time(now).last_at
    return bool(
        transaction.rows(
            sql.ADVANCE,
            {
                "name": schedule.name,
                # As it was read: on SQLite somebody may have typed it in a form of their own.
                "read_at": row[tuple(sql.COLUMNS).index("next_at")],
                "revision": schedule.revision,
                "was_ahead": int(schedule.is_ahead(now)),
                "next_at": schedule_rows.time_parameter(firing.next_at, dialect),
                "last_at": schedule_rows.time_parameter(last_at, dialect),
            },
        )
    )


def _insert_ticks(transaction: CursorTransaction, ticks: list[Tick]) -> list[Tick]:
    """Those that were not there already: an instant that has fired does not fire again, whatever became of its
    schedule in between."""
    if not ticks:
        return []
    values = [{"planned_at": tick.planned_at, "outcome": str(tick.outcome), "detail": tick.detail} for tick in ticks]
    inserted = transaction.rows(
        sql.INSERT_TICKS,
        {
            "name": ticks[0].schedule,
            "holder": ticks[0].holder,
            "fired_at": schedule_rows.time_parameter(ticks[0].fired_at, transaction.dialect),
            "rows": schedule_rows.encode_rows(values, transaction.dialect),
        },
    )
    new = {schedule_rows.utc(row[0]) for row in inserted}
    return [tick for tick in ticks if tick.planned_at in new]


def _with_jobs(
    transaction: CursorTransaction, schedule: Schedule, ticks: list[Tick], defaults: Mapping[str, Any]
) -> list[Tick]:
    firing = [tick for tick in ticks if tick.outcome == Outcome.FIRED]
    if not firing:
        return ticks
    jobs = [schedule.job_at(tick.planned_at, defaults) for tick in firing]
    if transaction.dialect == POSTGRES and any(job.key is not None for job in jobs):
        transaction.run(sql.PATIENCE)
    answers = enqueue_in(transaction, jobs)
    fired = [_with_job(tick, answer) for tick, answer in zip(firing, answers, strict=True)]
    values = [{"planned_at": tick.planned_at, "outcome": str(tick.outcome), "job_id": tick.job_id} for tick in fired]
    rows_ = schedule_rows.encode_rows(values, transaction.dialect)
    transaction.run(sql.RECORD_JOBS, {"name": schedule.name, "rows": rows_})
    return [*fired, *(tick for tick in ticks if tick.outcome == Outcome.SKIPPED)]


def _is_key_being_taken(error: Exception) -> bool:
    """Somebody's open transaction is taking the job's unique key. The other schedules do not wait for it."""
    return getattr(error.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE


def _with_job(tick: Tick, answer: Enqueued) -> Tick:
    return replace(tick, job_id=answer.id, outcome=Outcome.FIRED if answer.created else Outcome.EXISTING)


def defaults_of(database: Database, schedule: Schedule, lease_seconds: float) -> dict[str, Any]:
    """A declaration names all that its task names; what an operator made gets the rest from what was announced."""
    if schedule.declared is not None:
        return {"lease_seconds": lease_seconds}
    return manifest.defaults_of(announcing.announced(database, schedule.task), lease_seconds)
