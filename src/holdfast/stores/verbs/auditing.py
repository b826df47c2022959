"""Read the audit log backwards: window after window, each as wide as it may be to hold some thousand rows.

A call looks at a bounded number of rows. If what is wanted is rare among them, the page is short and says how far back
it looked; the next one goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import AuditFilter, AuditPage, FeedPlace, Transition
from holdfast.domain.lifecycle import Event
from holdfast.domain.names import check_id, check_integer, check_moment, check_name
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.statements import audit as sql
from holdfast.stores.statements import feed
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text

MAX_PAGE = 1_000
MOST_IN_WINDOW = 5_000
MOST_LOOKED = 20_000
FIRST_WINDOW = timedelta(minutes=1)
SHORTEST_WINDOW = timedelta(milliseconds=1)
LONGEST_WINDOW = timedelta(days=3_650)
STEP = 4  # by which a window grows or shrinks
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_ID, _LAST_SEQ = "ffffffff-ffff-ffff-ffff-ffffffffffff", 2**31 - 1


def audit(database: Database, wanted: AuditFilter, before: FeedPlace | None, limit: int) -> AuditPage:
    check_integer(limit, "limit", 1, MAX_PAGE)
    given = _given(wanted)
    with database.reading() as transaction:
        place = _end_of_log(transaction) if before is None else _checked(before)
        reader = _Backwards(transaction, given, place, limit)
        return reader.of_job() if wanted.job_id is not None else reader.of_all()


class _Backwards:
    def __init__(self, transaction: Transaction, given: dict[str, Any], place: FeedPlace, limit: int) -> None:
        self._transaction = transaction
        self._given = given
        self._place = place
        self._limit = limit
        self._items: list[Transition] = []

    def of_job(self) -> AuditPage:
        self._items += self._page({})
        return self._cut() or AuditPage(tuple(self._items), _BEGINNING, False)

    def of_all(self) -> AuditPage:
        looked = 0
        for since, count in self._windows():
            looked += count
            self._items += self._page({"since": self._moment(since)})
            if (page := self._cut()) is not None:
                return page
            self._place = FeedPlace(since)
            is_end = since <= _BEGINNING or not self._transaction.rows(sql.OLDER, {"since": self._moment(since)})
            if is_end or looked >= MOST_LOOKED:
                return AuditPage(tuple(self._items), since, not is_end, None if is_end else self._place)
        raise AssertionError("the windows end with the log")

    def _windows(self) -> Iterator[tuple[datetime, int]]:
        """Where each begins and how many rows it holds; it ends at the place that was reached."""
        width = FIRST_WINDOW
        while True:
            since = max(self._place.at - width, _BEGINNING)
            count = self._measure(since)
            if count > MOST_IN_WINDOW and width > SHORTEST_WINDOW:
                width = max(width / STEP, SHORTEST_WINDOW)
                continue
            yield since, count
            if count < MOST_IN_WINDOW / STEP:
                width = min(width * STEP, LONGEST_WINDOW)

    def _measure(self, since: datetime) -> int:
        given = {**self._until(), "since": self._moment(since), "most": MOST_IN_WINDOW + 1}
        return int(self._transaction.rows(sql.MEASURE, given)[0][0])

    def _page(self, window: dict[str, Any]) -> list[Transition]:
        more = self._limit + 1 - len(self._items)
        given = {**self._given, **self._until(), **window, "limit": more}
        found = self._transaction.rows(sql.page(tuple(self._given)), given)
        return [Transition(**rows.decoded(feed.COLUMNS, row, self._transaction.dialect)) for row in found]

    def _cut(self) -> AuditPage | None:
        """A full page, if there is more than that."""
        if len(self._items) <= self._limit:
            return None
        items = tuple(self._items[: self._limit])
        return AuditPage(items, items[-1].at, True, items[-1].place)

    def _until(self) -> dict[str, Any]:
        return {"at": self._moment(self._place.at), "place": self._place.job_id, "seq": self._place.seq}

    def _moment(self, moment: datetime) -> Any:
        return to_text(moment) if self._transaction.dialect == SQLITE else moment


def _end_of_log(transaction: Transaction) -> FeedPlace:
    """A little ahead: the clock of whoever wrote last may be."""
    now = rows.moment(transaction.rows(feed.NOW)[0][0])
    assert now is not None
    return FeedPlace(now + FIRST_WINDOW / 2, _LAST_ID, _LAST_SEQ)


def _checked(place: FeedPlace) -> FeedPlace:
    at = max(check_moment(place.at, "before").astimezone(UTC), _BEGINNING)
    return FeedPlace(at, check_id(place.job_id, "before"), check_integer(place.seq, "before", -1, _LAST_SEQ))


def _given(wanted: AuditFilter) -> dict[str, Any]:
    given: dict[str, Any] = {
        "events": json.dumps([_known_event(event) for event in wanted.events]) if wanted.events else None,
        "queues": None if wanted.queues is None else json.dumps([check_name(name, "queue") for name in wanted.queues]),
        "task": None if wanted.task is None else check_name(wanted.task, "task"),
        "worker": None if wanted.worker is None else check_name(wanted.worker, "worker"),
        "job_id": None if wanted.job_id is None else check_id(wanted.job_id, "job_id"),
    }
    return {name: value for name, value in given.items() if value is not None}


def _known_event(event: str) -> str:
    try:
        return str(Event(event))
    except ValueError:
        raise InvalidInput("events", f"must be among {', '.join(Event)}, got {event!r}") from None
