"""Roll the newest part of the audit log up into minutes, one process at a time.

A pass begins with the first minute that is not final and ends with the present one. It reads a few minutes at once, or
where much happens some seconds, and stops after a while, when a minute is complete: what is left is the next pass's. It
writes everything it computed, and how far it came, in one transaction, and only if nobody else has taken the turn
meanwhile: so a pass that was slow cannot undo a later one.
No statement takes long, however much has piled up: one that is cut off would be tried again for ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.domain.activity import RolledUp
from holdfast.domain.names import check_name
from holdfast.domain.rolling import (
    IDLE_SECONDS,
    LONGEST_SPAN,
    MINUTE,
    SHORTEST_SPAN,
    Happened,
    Progress,
    Tally,
    beginning,
    first_not_final,
    minute_of,
    next_span,
    piece,
)
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import activity as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import from_text, to_text
from holdfast.stores.verbs.querying import queues

LONGEST_PASS_SECONDS = 2.0
ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class _Turn:
    holder: str
    ticked_at: Any  # as the driver has it
    now: datetime
    progress: Progress | None


def roll_up(database: Database, holder: str) -> RolledUp | None:
    began = time.monotonic()
    turn = _take_turn(database, check_name(holder, "holder"))
    if turn is None:
        return None
    first = beginning(turn.progress, turn.now)
    tally, until, span = _read(database, turn, first, began)
    if until > turn.now:
        _look_at_queues(database, tally, turn.now)
    seconds = time.monotonic() - began
    progress = Progress(first_not_final(until, turn.now), seconds, span, behind=until <= turn.now)
    if not _write(database, turn, tally, progress):
        return None
    minutes = int((until - first) / MINUTE)
    return RolledUp(minutes, tally.events, min(until, turn.now), time.monotonic() - began, progress.behind)


def _take_turn(database: Database, holder: str) -> _Turn | None:
    with database.reading() as transaction:
        now, seen, detail = transaction.rows(sql.LOOK)[0]
    moment, ticked = rows.moment(now), rows.some_moment(seen)
    assert moment is not None
    progress = _progress(rows.parsed(detail, database.dialect))
    since = None if ticked is None else (moment - ticked).total_seconds()
    period = Progress(moment).period if progress is None else progress.period
    # A tick from the future was written by a clock that has since been set right.
    if since is not None and -60.0 <= since < period:
        return None
    if since is not None and 0.0 <= since < IDLE_SECONDS and progress is not None and not progress.behind:
        with database.reading() as transaction:
            if not transaction.rows(sql.ANYTHING, {"since": seen}):
                return None
    with database.statement() as transaction:
        took = transaction.rows(sql.TAKE, {"holder": holder, "seen": seen})
    return _Turn(holder, took[0][0], moment.astimezone(UTC), progress) if took else None


def _progress(stored: Any) -> Progress | None:
    """None as well when somebody typed something else there."""
    try:
        first = from_text(stored["first"]).astimezone(UTC)
        span = min(max(timedelta(seconds=float(stored["span"])), SHORTEST_SPAN), LONGEST_SPAN)
        return Progress(first, max(0.0, float(stored["seconds"])), span, stored["behind"] is True)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _read(database: Database, turn: _Turn, first: datetime, began: float) -> tuple[Tally, datetime, timedelta]:
    """Up to which minute it came, and how much to read at once next time."""
    tally, until = Tally(), first
    span = SHORTEST_SPAN if turn.progress is None else turn.progress.span
    end = minute_of(turn.now) + MINUTE
    while until < end and (until < first + MINUTE or until != minute_of(until) or _has_time(began)):
        since, until = until, piece(until, end, span)
        started = time.monotonic()
        _count(database, tally, since, until)
        span = next_span(until - since, time.monotonic() - started)
    return tally, until, span


def _has_time(began: float) -> bool:
    return time.monotonic() - began < LONGEST_PASS_SECONDS


def _count(database: Database, tally: Tally, since: datetime, until: datetime) -> None:
    window = {"since": _given(since, database), "until": _given(until, database)}
    with database.reading() as transaction:
        found = transaction.rows(sql.HAPPENED, window)
        for minute, queue, task, source, event, ends_run, place, count, _cache in found:
            place = None if place is None else int(place)
            tally.add(Happened(_minute(minute), queue, task, source, event, place, bool(ends_run), int(count)))
        if any(row[-1] for row in found):
            for minute, said, count in transaction.rows(sql.CACHED, window):
                tally.add_cache(_minute(minute), said, int(count))


def _look_at_queues(database: Database, tally: Tally, now: datetime) -> None:
    minute = minute_of(now)
    depths = queues(database)
    with database.reading() as transaction:
        known = [row[0] for row in transaction.rows(sql.SEEN_QUEUES, {"minute": _given(minute, database)})]
    tally.look(minute, now, depths, known)


def _write(database: Database, turn: _Turn, tally: Tally, progress: Progress) -> bool:
    detail = {
        "first": to_text(progress.first),
        "seconds": round(progress.seconds, 6),
        "span": progress.span.total_seconds(),
        "behind": progress.behind,
    }
    finished = {"detail": json.dumps(detail), "holder": turn.holder, "ticked_at": turn.ticked_at}
    with database.transaction() as transaction:
        if not transaction.rows(sql.FINISH, finished):
            return False
        _keep(transaction, [{**row, "minute": to_text(row["minute"])} for row in tally.rows()])
    return True


def _keep(transaction: Transaction, computed: Sequence[dict[str, Any]]) -> None:
    for start in range(0, len(computed), ROWS_AT_ONCE):
        transaction.run(sql.KEEP, {"rows": json.dumps(computed[start : start + ROWS_AT_ONCE])})


def _minute(seconds: Any) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _given(moment: datetime, database: Database) -> Any:
    return to_text(moment) if database.dialect == SQLITE else moment
