"""Correct what a store clock left behind that was ahead and has since been set back.

The reaper's row holds the evidence. A tick that finds the previous one more than a minute in the future stores it as
`clock_was_at`. The first tick, and one after a gap, stores `check`: no reaper was running that could have noticed a
step, so the next pass searches the audit log for times in the future, once. Until the clock has caught up with
`clock_was_at`, every pass corrects what it finds. So a reaper that dies loses nothing, and a transaction that was open
during the step is covered.
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.answers import ClockCorrection
from holdfast.domain.schedule import CLOCK_SLACK_SECONDS
from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.statements import clock_step as sql
from holdfast.stores.statements.reap import CHECK, CLOCK_WAS_AT
from holdfast.stores.statements.words import SQLITE, Statement
from holdfast.stores.types import to_text

PAGE = 5_000
MAX_PASS_SECONDS = 2.0  # the next pass continues


def correct(database: Database, noted: Any, now: datetime, *, something_runs: bool) -> ClockCorrection | None:
    """One pass; None if the clock was not set back, as far as the store can tell."""
    was_at = _was_at(database, noted)
    if was_at is not None and was_at <= now + timedelta(seconds=CLOCK_SLACK_SECONDS):
        was_at = None
    leases = _correct_leases(database) if something_runs else 0
    if was_at is None:
        return ClockCorrection(None, leases) if leases else None
    given = {"was_at": to_text(was_at) if database.dialect == SQLITE else was_at}
    jobs = _page_by_page(database, sql.CORRECT_JOBS, given)
    with database.statement() as transaction:
        sources = len(transaction.rows(sql.CORRECT_SOURCES, given))
    with database.statement() as transaction:
        transaction.run(sql.CORRECT_WORKERS)
    return ClockCorrection((was_at - now).total_seconds(), leases, jobs, sources)


def _was_at(database: Database, noted: Any) -> datetime | None:
    detail = rows.parsed(noted, database.dialect)
    if not isinstance(detail, dict):
        return None
    if CHECK not in detail:
        return rows.some_moment(detail.get(CLOCK_WAS_AT))
    with database.transaction(sql.BY_INDEX) as transaction:
        latest = rows.some_moment(transaction.rows(sql.LATEST_EVENT)[0][0])
    found = None if latest is None else json.dumps({CLOCK_WAS_AT: to_text(latest)})
    with database.statement() as transaction:
        transaction.run(sql.NOTE, {"detail": found})
    return latest


def _correct_leases(database: Database) -> int:
    """Reads first: on SQLite a write would take the lock from the others, at every tick."""
    with database.reading() as transaction:
        found = transaction.rows(sql.LEASES_AHEAD)
    return _page_by_page(database, sql.CORRECT_LEASES, {}) if found else 0


def _page_by_page(database: Database, statement: Statement, given: dict[str, Any]) -> int:
    began, corrected = time.monotonic(), 0
    while True:
        with database.transaction(sql.BY_INDEX) as transaction:
            page = len(transaction.rows(statement, {**given, "limit": PAGE}))
        corrected += page
        if page < PAGE or time.monotonic() - began > MAX_PASS_SECONDS:
            return corrected
