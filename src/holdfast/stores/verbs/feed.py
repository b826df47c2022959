"""Read the audit log as it grows, and one job's history page by page."""

from __future__ import annotations

from typing import Any

from holdfast.domain.feed import FeedPage, FeedPlace, Transition
from holdfast.domain.job import AuditEvent
from holdfast.domain.names import check_id, check_integer, check_moment
from holdfast.domain.views import Page
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import feed as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text

MAX_PAGE = 1_000
_MOST = 2**31 - 1


def feed(database: Database, after: FeedPlace | None, limit: int) -> FeedPage:
    """Without a place: only what time it is, to begin from there."""
    check_integer(limit, "limit", 1, MAX_PAGE)
    with database.reading() as transaction:
        now = rows.moment(transaction.rows(sql.NOW)[0][0])
        assert now is not None
        found = [] if after is None else transaction.rows(sql.AFTER, _place(transaction, after, limit + 1))
    items = tuple(Transition(**rows.decoded(sql.COLUMNS, row, database.dialect)) for row in found[:limit])
    return FeedPage(now, items, len(found) > limit)


def _place(transaction: Transaction, after: FeedPlace, limit: int) -> dict[str, Any]:
    at = check_moment(after.at, "after")
    return {
        "at": to_text(at) if transaction.dialect == SQLITE else at,
        "job_id": check_id(after.job_id, "after"),
        "seq": check_integer(after.seq, "after", -1, _MOST),
        "limit": limit,
    }


def history(database: Database, job_id: str, after: int, limit: int) -> Page[AuditEvent]:
    """The events of one job whose number is higher than `after`."""
    wanted = {
        "id": check_id(job_id, "job_id"),
        "after": check_integer(after, "after", 0, _MOST),
        "limit": check_integer(limit, "limit", 1, MAX_PAGE) + 1,
    }
    with database.reading() as transaction:
        found = transaction.rows(sql.OF_JOB, wanted)
    items = tuple(rows.audit_event(row, database.dialect) for row in found[:limit])
    return Page(items, str(items[-1].seq) if len(found) > limit else None)
