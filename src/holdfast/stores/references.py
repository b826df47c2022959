"""Find what other rows say of jobs that have neither a row nor a history, page by page, in constant memory.

Three things of the engine's own name a job: a tick of a schedule, an artifact and a record. (`replay_of` is typed by a
caller, and proves nothing.) Each table is walked by its key; a page is one statement, so that the row, the history and
what speaks of them are seen in the same moment. Between pages nothing is open. Whether a job that is found missing may
be missing, only the watermark can tell, and it must be read after the page was: a history and the watermark go in one
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, Text, Tuple, cast, exists, literal, select, tuple_

from holdfast.domain.history import Reference
from holdfast.domain.retention import Watermark
from holdfast.stores.schema import artifacts, events, jobs, meta, records, schedule_ticks
from holdfast.stores.statements.retention import WATERMARK_KEY
from holdfast.stores.types import to_text
from holdfast.stores.verbs.retaining import read_watermark

PAGE_ROWS = 2000


@dataclass(frozen=True, slots=True)
class _Kind:
    what: str
    key: tuple[Column[Any], ...]
    job_id: Column[Any]
    at: Column[Any]


_KINDS = (
    _Kind(
        "a tick of schedule",
        (schedule_ticks.c.schedule, schedule_ticks.c.planned_at),
        schedule_ticks.c.job_id,
        schedule_ticks.c.fired_at,
    ),
    _Kind(
        "an artifact of job",
        (artifacts.c.job_id, artifacts.c.attempt, artifacts.c.name),
        artifacts.c.job_id,
        artifacts.c.saved_at,
    ),
    # By its creation: later jobs may write to a record again.
    _Kind("record", (records.c.id,), records.c.job_id, records.c.created_at),
)


class References:
    """Every iteration reads the database anew."""

    def __init__(self, engine: Engine, page_rows: int = PAGE_ROWS) -> None:
        self._engine = engine
        self._page_rows = page_rows

    def __iter__(self) -> Iterator[Reference]:
        for kind in _KINDS:
            after: Sequence[Any] | None = None
            while True:
                with self._engine.connect() as connection:
                    end = self._page_end(connection, kind, after)
                    found = _missing(connection, kind, after, end)
                yield from found
                if end is None:
                    break
                after = end

    def retired(self) -> Watermark | None:
        """How far histories have been retired by now."""
        with self._engine.connect() as connection:
            value = connection.scalar(select(meta.c.value).where(meta.c.key == WATERMARK_KEY))
        return None if value is None else read_watermark(value)

    def _page_end(self, connection: Connection, kind: _Kind, after: Sequence[Any] | None) -> Sequence[Any] | None:
        """The key of the page's last row; None when there is less than a page."""
        page = select(*kind.key).where(*_beyond(kind, after)).order_by(*kind.key)
        row = connection.execute(page.offset(self._page_rows - 1).limit(1)).first()
        return None if row is None else tuple(row)


def _missing(
    connection: Connection, kind: _Kind, after: Sequence[Any] | None, end: Sequence[Any] | None
) -> list[Reference]:
    query = (
        select(cast(kind.job_id, Text), kind.at, cast(kind.key[0], Text))
        .where(kind.job_id.is_not(None), *_beyond(kind, after), *_up_to(kind, end))
        .where(~exists().where(jobs.c.id == kind.job_id), ~exists().where(events.c.job_id == kind.job_id))
        .order_by(*kind.key)
    )
    return [Reference(job_id, to_text(at), f"{kind.what} {name}") for job_id, at, name in connection.execute(query)]


def _beyond(kind: _Kind, after: Sequence[Any] | None) -> list[ColumnElement[bool]]:
    return [] if after is None else [tuple_(*kind.key) > _place(kind, after)]


def _up_to(kind: _Kind, end: Sequence[Any] | None) -> list[ColumnElement[bool]]:
    return [] if end is None else [tuple_(*kind.key) <= _place(kind, end)]


def _place(kind: _Kind, values: Sequence[Any]) -> Tuple:
    return tuple_(*(literal(value, column.type) for column, value in zip(kind.key, values, strict=True)))
