"""Look through the dead letters. What an operator does with them are the verbs `requeue` and `purge`."""

from __future__ import annotations

from typing import Any

from holdfast.domain.job import Job
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.views import DeadCount, Page
from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.statements import dead as sql
from holdfast.stores.verbs.querying import MAX_PAGE

COUNTED = 1_000_000  # the groups are those of the newest so many


def dead(database: Database, task: str | None, queue: str | None, limit: int, after: str | None) -> Page[Job]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    given = _given(task, queue, after, None)
    with database.reading() as transaction:
        found = transaction.rows(sql.list_dead(tuple(given)), {**given, "limit": limit + 1})
    items = tuple(rows.job(row, database.dialect) for row in found[:limit])
    return Page(items, items[-1].id if len(found) > limit else None)


def dead_ids(
    database: Database,
    task: str | None,
    queue: str | None,
    older_than: float | None,
    limit: int,
    after: str | None,
) -> list[str]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    given = _given(task, queue, after, older_than)
    with database.reading() as transaction:
        return [row[0] for row in transaction.rows(sql.list_ids(tuple(given)), {**given, "limit": limit})]


def dead_counts(database: Database, task: str | None, queue: str | None, older_than: float | None) -> list[DeadCount]:
    given = _given(task, queue, None, older_than)
    with database.reading() as transaction:
        found = transaction.rows(sql.counts(tuple(given)), {**given, "most": COUNTED})
    return [DeadCount(name, code, int(count), rows.moment(newest)) for name, code, count, newest in found]


def _given(task: str | None, queue: str | None, after: str | None, older_than: float | None) -> dict[str, Any]:
    wanted = {
        "task": None if task is None else check_name(task, "task"),
        "queue": None if queue is None else check_name(queue, "queue"),
        "after": None if after is None else check_id(after, "after"),
        "older_than": None if older_than is None else float(older_than),
    }
    return {name: value for name, value in wanted.items() if value is not None}
