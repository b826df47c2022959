"""Read the audit log backwards, whether what is wanted is nearly all of it or three rows among millions.

What seldom happens has an index of its own. All else is looked for window after window of time, each as wide as it may
be to hold some thousand rows; and if there is little of it there, and it is of one task or of some queues that have few
jobs, then in the histories of those. A call looks at a bounded number of rows. If what is wanted is rare among them,
the page is short and says how far back it looked; the next one goes on from there.
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
from holdfast.domain.views import JobFilter
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.schema.audit import SELDOM
from holdfast.stores.statements import audit as sql
from holdfast.stores.statements import feed
from holdfast.stores.statements.words import SQLITE, Statement
from holdfast.stores.types import to_text
from holdfast.stores.verbs.following import following
from holdfast.stores.verbs.searching import ids_of_few

MAX_PAGE = 1_000
MOST_IN_WINDOW = 5_000
FIRST_LOOKED = 5_000  # rows, before the histories of jobs are looked at
MOST_LOOKED = 20_000
MOST_JOBS = 500
FIRST_WINDOW = timedelta(minutes=1)
SHORTEST_WINDOW = timedelta(milliseconds=1)
LONGEST_WINDOW = timedelta(days=3_650)
STEP = 4  # by which a window grows or shrinks
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_ID, _LAST_SEQ = "ffffffff-ffff-ffff-ffff-ffffffffffff", 2**31 - 1


def audit(database: Database, wanted: AuditFilter, before: FeedPlace | None, limit: int) -> AuditPage:
    check_integer(limit, "limit", 1, MAX_PAGE)
    place = _end_of_log(database) if before is None else _checked(before)
    return _Backwards(database, wanted, place, limit).page()


class _Backwards:
    """A page that is being read: what was found, and the place down to which that is all there is."""

    def __init__(self, database: Database, wanted: AuditFilter, place: FeedPlace, limit: int) -> None:
        self._database = database
        self._wanted = wanted
        self._given = _given(wanted)
        self._limit = limit
        self._items: list[Transition] = []
        self._place = place
        self._at_end = False
        self._width = FIRST_WINDOW

    def page(self) -> AuditPage:
        is_seldom = bool(self._wanted.events) and set(SELDOM).issuperset(self._wanted.events)
        if self._wanted.job_id is not None:
            self._read_job()
        elif is_seldom:
            self._walk([Event(event) for event in self._wanted.events])
        else:
            self._read_windows(FIRST_LOOKED)
        if self._is_short and (jobs := self._few_jobs()) is not None:
            pruned_since = self._place.at
            self._read_jobs(jobs)
            return self._cut(pruned_since)
        if self._is_short and not is_seldom:
            self._read_windows(MOST_LOOKED - FIRST_LOOKED)
        return self._cut()

    @property
    def _is_short(self) -> bool:
        return not self._at_end and len(self._items) <= self._limit

    def _cut(self, pruned_since: datetime | None = None) -> AuditPage:
        if len(self._items) > self._limit:
            items = tuple(self._items[: self._limit])
            return AuditPage(items, items[-1].at, items[-1].place, pruned_since)
        if self._at_end:
            return AuditPage(tuple(self._items), None, None, pruned_since)
        return AuditPage(tuple(self._items), self._place.at, self._place)

    def _read_job(self) -> None:
        with self._database.reading() as transaction:
            self._items += self._found(transaction, sql.page(tuple(self._given)))
        self._at_end = True

    def _few_jobs(self) -> list[str] | None:
        if self._wanted.task is None and self._wanted.queues is None:
            return None
        return ids_of_few(self._database, JobFilter(task=self._wanted.task, queues=self._wanted.queues), MOST_JOBS)

    def _read_jobs(self, ids: list[str]) -> None:
        filters = tuple(name for name in self._given if name not in ("task", "queues"))
        with self._database.reading() as transaction:
            self._items += self._found(transaction, sql.of_jobs(filters), ids=json.dumps(ids))
        self._at_end = True

    def _walk(self, events: list[Event]) -> None:
        """Sure is what comes before the first place where one of the walks ended."""
        look, found, ends = max(MOST_LOOKED // len(events), 1), [], []
        given = {name: value for name, value in self._given.items() if name != "events"}
        with following(self._database) as transaction:
            for event in events:
                statement = sql.walk(event, tuple(given))
                for *row, number, is_wanted in transaction.rows(statement, self._asked(given, look=look)):
                    item = self._transition(row)
                    if is_wanted:
                        found.append(item)
                    if number == look:
                        ends.append(item.place)
        end = max(ends, default=None)
        found.sort(key=lambda item: item.place, reverse=True)
        self._items += [item for item in found if end is None or item.place >= end]
        if end is None:
            self._at_end = True
        else:
            self._place = end

    def _read_windows(self, most: int) -> None:
        looked = 0
        with self._database.reading() as transaction:
            for since, count in self._windows(transaction):
                looked += count
                start = self._moment(since)
                self._items += self._found(transaction, sql.page(tuple(self._given)), since=start)
                self._place = FeedPlace(since)
                self._at_end = since <= _BEGINNING or not transaction.rows(sql.OLDER, {"since": start})
                if not self._is_short or looked >= most:
                    return

    def _windows(self, transaction: Transaction) -> Iterator[tuple[datetime, int]]:
        """Where each begins and how many rows it holds; it ends at the place that was reached."""
        while True:
            since = max(self._place.at - self._width, _BEGINNING)
            measured = {**self._until(), "since": self._moment(since), "most": MOST_IN_WINDOW + 1}
            count = int(transaction.rows(sql.MEASURE, measured)[0][0])
            if count > MOST_IN_WINDOW and self._width > SHORTEST_WINDOW:
                self._width = max(self._width / STEP, SHORTEST_WINDOW)
                continue
            yield since, count
            if count < MOST_IN_WINDOW / STEP:
                self._width = min(self._width * STEP, LONGEST_WINDOW)

    def _found(self, transaction: Transaction, statement: Statement, **more: Any) -> list[Transition]:
        return [self._transition(row) for row in transaction.rows(statement, self._asked(self._given, **more))]

    def _asked(self, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**given, **self._until(), **more, "limit": self._limit + 1 - len(self._items)}

    def _transition(self, row: Any) -> Transition:
        return Transition(**rows.decoded(feed.COLUMNS, row, self._database.dialect))

    def _until(self) -> dict[str, Any]:
        return {"at": self._moment(self._place.at), "place": self._place.job_id, "seq": self._place.seq}

    def _moment(self, moment: datetime) -> Any:
        return to_text(moment) if self._database.dialect == SQLITE else moment


def _end_of_log(database: Database) -> FeedPlace:
    """A little ahead: the clock of whoever wrote last may be."""
    with database.reading() as transaction:
        now = rows.moment(transaction.rows(feed.NOW)[0][0])
    assert now is not None
    return FeedPlace(now + FIRST_WINDOW / 2, _LAST_ID, _LAST_SEQ)


def _checked(place: FeedPlace) -> FeedPlace:
    at = max(check_moment(place.at, "before"), _BEGINNING)
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
