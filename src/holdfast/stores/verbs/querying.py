"""Read: jobs, histories, queues, sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.errors import InvalidInput, NotFound
from holdfast.domain.job import Attempt, AuditEvent, Job
from holdfast.domain.lifecycle import State
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.views import Page, QueueView, Refusal
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import queries

MAX_PAGE = 1_000


def job(database: Database, job_id: str) -> Job:
    job_id = check_id(job_id, "job_id")
    with database.reading() as transaction:
        found = transaction.rows(queries.JOB, {"id": job_id})
    if not found:
        raise NotFound(f"there is no job {job_id}")
    return rows.job(found[0], database.dialect)


def jobs(
    database: Database,
    states: Sequence[State],
    queue: str | None,
    task: str | None,
    limit: int,
    after: str | None,
) -> Page[Job]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    wanted: dict[str, Any] = {
        "states": json.dumps([known_state(state) for state in states]) if states else None,
        "queue": None if queue is None else check_name(queue, "queue"),
        "task": None if task is None else check_name(task, "task"),
        "after": None if after is None else check_id(after, "after"),
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    with database.reading() as transaction:
        # One more than asked for tells whether there is a next page.
        found = transaction.rows(queries.list_jobs(tuple(given)), {**given, "limit": limit + 1})
    items = tuple(rows.job(row, database.dialect) for row in found[:limit])
    return Page(items, items[-1].id if len(found) > limit else None)


def events(database: Database, job_id: str) -> list[AuditEvent]:
    with database.reading() as transaction:
        found = transaction.rows(queries.EVENTS, {"id": check_id(job_id, "job_id")})
    return [rows.audit_event(row, database.dialect) for row in found]


def attempts(database: Database, job_id: str) -> list[Attempt]:
    with database.reading() as transaction:
        found = transaction.rows(queries.ATTEMPTS, {"id": check_id(job_id, "job_id")})
    return [rows.attempt(row, database.dialect) for row in found]


def refusals(database: Database, job_id: str | None) -> list[Refusal]:
    with database.reading() as transaction:
        found = transaction.rows(queries.REFUSALS, {"id": None if job_id is None else check_id(job_id, "job_id")})
    return [refusal(row) for row in found]


def refusal(row: Row) -> Refusal:
    identity, attempt, verb, reason, worker, first, last, count = row
    return Refusal(identity, attempt, verb, reason, worker, _known(first), _known(last), count)


def queues(database: Database) -> list[QueueView]:
    with database.reading() as transaction:
        found = transaction.rows(queries.QUEUES)
    return [
        QueueView(name, int(ready), int(scheduled), int(running), rows.moment(oldest), rows.moment(paused), limit)
        for name, ready, scheduled, running, oldest, paused, limit in found
    ]


def counts(database: Database) -> dict[str, int]:
    with database.reading() as transaction:
        return {state: int(count) for state, count in transaction.rows(queries.COUNTS)}


def known_state(state: str) -> State:
    try:
        return State(state)
    except ValueError:
        raise InvalidInput("states", f"must be among {', '.join(State)}, got {state!r}") from None


def _known(value: Any) -> datetime:
    moment = rows.moment(value)
    assert moment is not None
    return moment
