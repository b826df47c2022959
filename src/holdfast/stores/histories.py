"""Read every job with its history, in order of id, from a database that is in use, in constant memory.

The reader goes page by page. A page is read in one snapshot of its own, row and events of a job together, so
a transition that happens meanwhile is seen as a whole or not at all. Between pages no transaction is open,
and the page is handed on only after its snapshot was closed. The one exception is a history longer than a
page: it is streamed, in chunks, out of the snapshot that its row was read in.

A page is as many events as fit, cut before the first history that may be incomplete. That bounds the rows as
well, because every job has at least one event; a limit on the rows is for the damaged database in which that
is not so.

Jobs that are enqueued after the start may be left out: otherwise a busy database could keep the reader going
forever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Select,
    Text,
    case,
    cast,
    func,
    literal_column,
    select,
)

from holdfast.domain.history import EventFacts, History, RowFacts
from holdfast.domain.lifecycle import Event
from holdfast.stores.schema import events, jobs

PAGE_EVENTS = 2000

# The form in which SQLite stores times anyway.
_POSTGRES_TIME = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""


class Histories:
    """Every iteration reads the database anew."""

    def __init__(self, engine: Engine, page_events: int = PAGE_EVENTS) -> None:
        self._engine = engine
        self._page_events = page_events
        is_sqlite = engine.dialect.name == "sqlite"
        self._snapshot = _sqlite_snapshot if is_sqlite else _postgres_snapshot
        time_text = _sqlite_time if is_sqlite else _postgres_time
        self._events = _select_events(time_text(events.c.at)).limit(page_events)
        self._rows = _select_rows(time_text(jobs.c.updated_at)).limit(page_events)
        self._last_ids = [_select_last(jobs.c.id), _select_last(events.c.job_id)]
        if is_sqlite:
            self._refuse_odd_types()

    def __iter__(self) -> Generator[History, None, None]:
        with self._open() as connection:
            last_ids = [connection.scalar(last_id) for last_id in self._last_ids]
        end = max((last_id for last_id in last_ids if last_id is not None), default=None)
        after: str | None = None
        while end is not None and (after is None or after < end):
            with self._open() as connection:
                page = self._read_page(connection, after, end)
                if page.is_one_long:
                    row = page.rows[0] if page.rows else None
                    yield History(page.last_id, row, self._stream(connection, page.last_id))
            if not page.is_one_long:
                yield from _merge(page.rows, page.events)
            after = page.last_id

    def count(self) -> int:
        """How many events there are, all of them counted: a fraction of what it takes to read them."""
        with self._open() as connection:
            return int(connection.scalar(select(func.count()).select_from(events)) or 0)

    def _refuse_odd_types(self) -> None:
        """SQLite's columns take any type: a text sorts behind all numbers, and a blob behind all texts.

        A reader that goes by the order of values would turn in circles there, or miss what follows.
        """
        self._events = self._events.where(func.typeof(events.c.seq) == "integer")
        columns = (jobs.c.id, events.c.job_id)
        self._last_ids = [_select_last(column).where(func.typeof(column) == "text") for column in columns]

    def _open(self) -> AbstractContextManager[Connection]:
        return self._snapshot(self._engine)

    def _read_page(self, connection: Connection, after: str | None, end: str) -> _Page:
        found = self._read_events(connection, _between(events.c.job_id, after, end))
        if len(found) < self._page_events:
            rows = self._read_rows(connection, _between(jobs.c.id, after, end))
            return self._limited(_Page(rows, found, end))
        cut = found[-1].job_id
        rows = self._read_rows(connection, [*_between(jobs.c.id, after, end), jobs.c.id < cut])
        complete = found[: bisect_left(found, cut, key=itemgetter(0))]
        if rows or complete:
            last_ids = [row.job_id for row in rows[-1:]] + [event.job_id for event in complete[-1:]]
            return self._limited(_Page(rows, complete, max(last_ids)))
        return _Page(self._read_rows(connection, [jobs.c.id == cut]), [], cut, is_one_long=True)

    def _limited(self, page: _Page) -> _Page:
        """The page as far as its rows were read."""
        if len(page.rows) < self._page_events:
            return page
        last_id = page.rows[-1].job_id
        return _Page(page.rows, [event for event in page.events if event.job_id <= last_id], last_id)

    def _read_events(self, connection: Connection, where: list[ColumnElement[bool]]) -> list[EventFacts]:
        return list(map(EventFacts._make, connection.execute(self._events.where(*where)).all()))

    def _read_rows(self, connection: Connection, where: list[ColumnElement[bool]]) -> list[RowFacts]:
        return list(map(RowFacts._make, connection.execute(self._rows.where(*where)).all()))

    def _stream(self, connection: Connection, job_id: str) -> Iterator[EventFacts]:
        where = [events.c.job_id == job_id]
        while chunk := self._read_events(connection, where):
            where = [events.c.job_id == job_id, events.c.seq > chunk[-1].seq]
            yield from chunk
            del chunk  # before the next one is read


@dataclass(frozen=True, slots=True)
class _Page:
    rows: list[RowFacts]
    events: list[EventFacts]
    last_id: str
    is_one_long: bool = False  # a single history that fills a page; its events are still to be read


def _merge(rows: list[RowFacts], found: list[EventFacts]) -> Iterator[History]:
    """Bring rows and events together by id. Either may be missing; that is for the checker to judge."""
    waiting = iter(rows)
    row = next(waiting, None)
    for job_id, history in groupby(found, itemgetter(0)):
        while row is not None and row.job_id < job_id:
            yield History(row.job_id, row, ())
            row = next(waiting, None)
        if row is not None and row.job_id == job_id:
            yield History(job_id, row, history)
            row = next(waiting, None)
        else:
            yield History(job_id, None, history)
    while row is not None:
        yield History(row.job_id, row, ())
        row = next(waiting, None)


def _between(job_id: Column[str], after: str | None, end: str) -> list[ColumnElement[bool]]:
    return [job_id <= end] if after is None else [job_id > after, job_id <= end]


def _select_last(job_id: Column[str]) -> Select[Any]:
    # Not max(): Postgres has none for UUIDs before version 18.
    return select(cast(job_id, Text)).order_by(job_id.desc()).limit(1)


def _select_events(at: ColumnElement[str]) -> Select[Any]:
    """In the order of EventFacts. The casts make numbers and texts of what else SQLite may hold."""
    return select(
        cast(events.c.job_id, Text),
        events.c.seq,
        at,
        events.c.event,
        events.c.from_state,
        events.c.to_state,
        cast(events.c.attempt, Integer),
        events.c.worker,
        events.c.lease,
        # As text: reading JSON in SQL fails on escapes that the database has no character for.
        case((events.c.event == str(Event.FAILED), cast(events.c.detail, Text))),
    ).order_by(events.c.job_id, events.c.seq)


def _select_rows(updated_at: ColumnElement[str]) -> Select[Any]:
    """In the order of RowFacts."""
    return select(
        cast(jobs.c.id, Text),
        jobs.c.state,
        cast(jobs.c.seq, Integer),
        jobs.c.transition,
        cast(jobs.c.attempt, Integer),
        cast(jobs.c.failures, Integer),
        cast(jobs.c.crashes, Integer),
        jobs.c.lease_owner,
        jobs.c.lease_token,
        jobs.c.lease_expires_at.is_not(None),
        jobs.c.finished_at.is_not(None),
        updated_at,
    ).order_by(jobs.c.id)


def _sqlite_time(column: Column[Any]) -> ColumnElement[str]:
    return cast(column, Text)


def _postgres_time(column: Column[Any]) -> ColumnElement[str]:
    in_utc = func.to_char(func.timezone("UTC", column), literal_column(_POSTGRES_TIME), type_=Text)
    # Infinite times have no such form; as text they sort before and after all others, as they should.
    return func.coalesce(in_utc, cast(column, Text), type_=Text)


@contextmanager
def _postgres_snapshot(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        # Without fresh statistics the planner takes a page for a handful of rows, and sorts the whole table for it.
        snapshot.exec_driver_sql("SET LOCAL enable_sort = off")
        snapshot.exec_driver_sql("SET LOCAL jit = off")
        # A history or a row that a policy hides would be reported as missing: the query fails instead.
        snapshot.exec_driver_sql("SET LOCAL row_security = off")
        yield snapshot


@contextmanager
def _sqlite_snapshot(engine: Engine) -> Iterator[Connection]:
    """A read transaction, whichever way the engine's connections begin theirs.

    The driver begins none for a SELECT, unless the engine was told to; and some ways of connecting leave one
    that was begun by hand to be ended by hand.
    """
    with engine.connect() as connection:
        connection.begin()
        begun_here = not _in_transaction(connection)
        if begun_here:
            connection.exec_driver_sql("BEGIN")
        try:
            yield connection
        finally:
            if begun_here and _in_transaction(connection):
                connection.exec_driver_sql("ROLLBACK")


def _in_transaction(connection: Connection) -> bool:
    return bool(getattr(connection.connection.driver_connection, "in_transaction", False))
