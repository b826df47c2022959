"""Read a run's ledger: every job with its history, once and in constant memory; ticks, deliveries, refusals.

Histories come in the order of their ids, and so do the rows with what a history does not tell (task, queue, source):
the two are merged. Nobody works any more while this reads, or what is read is not what is judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Text, cast, func, select

from holdfast.domain.history import Reference
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores.schema import artifacts, events, jobs, refusals, schedule_ticks
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.types import to_text
from holdfast.torture.checker.life import Life
from holdfast.torture.checker.origins import Delivery
from holdfast.torture.checker.ticks import Tick
from holdfast.wiring.sql import histories, references

PAGE_ROWS = 5000


class Kind(NamedTuple):
    """What a job is, as its row has it."""

    job_id: str
    task: str
    queue: str
    source: str | None
    replay_of: str | None


class Ledger:
    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._engine = store.database.engine

    def lives(self) -> Iterator[Life]:
        kinds = self._kinds()
        kind = next(kinds, None)
        for job_id, row, found in histories(self._store):
            while kind is not None and kind.job_id < job_id:
                kind = next(kinds, None)
            life = Life(job_id, row=row, events=list(found))
            if kind is not None and kind.job_id == job_id:
                _, life.task, life.queue, life.source, life.replay_of = kind
            yield life

    def _kinds(self) -> Iterator[Kind]:
        query = select(cast(jobs.c.id, Text), jobs.c.task, jobs.c.queue, jobs.c.source, cast(jobs.c.replay_of, Text))
        query = query.order_by(jobs.c.id).limit(PAGE_ROWS)
        page = query
        while True:
            with self._engine.connect() as connection:
                rows = connection.execute(page).all()
            yield from map(Kind._make, rows)
            if len(rows) < PAGE_ROWS:
                return
            page = query.where(jobs.c.id > rows[-1][0])

    def missing(self) -> list[Reference]:
        """What speaks of jobs that are gone."""
        return list(references(self._store))

    def retired_through(self) -> str | None:
        retired = references(self._store).retired()
        return None if retired is None else to_text(retired.through)

    def count_references(self) -> int:
        with self._engine.connect() as connection:
            ticks = connection.scalar(select(func.count(schedule_ticks.c.job_id)))
            saved = connection.scalar(select(func.count(artifacts.c.job_id)))
        return int(ticks or 0) + int(saved or 0)

    def count_refusals(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.sum(refusals.c.count))) or 0)

    def ticks(self) -> list[Tick]:
        columns = (
            schedule_ticks.c.schedule,
            schedule_ticks.c.planned_at,
            schedule_ticks.c.outcome,
            cast(schedule_ticks.c.job_id, Text),
            schedule_ticks.c.detail,
        )
        with self._engine.connect() as connection:
            found = connection.execute(select(*columns).order_by(*columns[:2])).all()
        return [_tick(*row) for row in found]

    def anchors(self) -> dict[str, datetime]:
        """From when on the instants of a schedule are counted."""
        return {schedule.name: schedule.anchor_at for schedule in self._store.schedules()}

    def deliveries(self) -> list[Delivery]:
        query = select(cast(jobs.c.id, Text), jobs.c.payload).where(jobs.c.task == DELIVERY_TASK)
        with self._engine.connect() as connection:
            found = connection.execute(query).all()
        return [_delivery(job_id, payload) for job_id, payload in found]

    def known(self, job_ids: Iterable[str]) -> set[str]:
        """Those of them that have a row or a history."""
        with self._engine.connect() as connection:
            return {job_id for job_id in job_ids if _is_known(connection, job_id)}

    def events(self, job_id: str) -> Sequence[Sequence[Any]]:
        """Seq, moment, event, from, to, attempt, worker, lease and detail, as texts, whatever they are."""
        columns = (
            events.c.seq,
            cast(events.c.at, Text),
            events.c.event,
            events.c.from_state,
            events.c.to_state,
            events.c.attempt,
            events.c.worker,
            events.c.lease,
            cast(events.c.detail, Text),
        )
        query = select(*columns).where(events.c.job_id == job_id).order_by(events.c.seq)
        with self._engine.connect() as connection:
            return connection.execute(query).all()


def _is_known(connection: Connection, job_id: str) -> bool:
    tables = (jobs.c.id, events.c.job_id)
    return any(connection.scalar(select(column).where(column == job_id).limit(1)) is not None for column in tables)


def _tick(schedule: str, planned_at: datetime, outcome: str, job_id: str | None, detail: Any) -> Tick:
    first = detail.get("first") if isinstance(detail, dict) else None
    more = bool(detail.get("more")) if isinstance(detail, dict) else False
    return Tick(schedule, planned_at, outcome, job_id, None if first is None else datetime.fromisoformat(first), more)


def _delivery(job_id: str, payload: Any) -> Delivery:
    given = json.loads(payload) if isinstance(payload, str) else payload
    told = given.get("job") if isinstance(given, dict) else None
    if not isinstance(told, dict):
        return Delivery(job_id, None, None)
    return Delivery(job_id, told.get("id"), told.get("state"))
