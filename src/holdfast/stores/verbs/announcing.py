"""Announce tasks and find what was announced: the defaults of whoever enqueues without the task's code at hand."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo
from holdfast.domain.names import check_name
from holdfast.domain.spec import check_json, encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import tasks as sql


def announce(database: Database, tasks: Sequence[TaskInfo]) -> None:
    if not tasks:
        return
    once = {check_name(task.name, "task"): _checked(task) for task in tasks}
    with database.statement() as transaction:
        transaction.run(sql.ANNOUNCE, {"rows": encode_json([task.to_json() for task in once.values()])})


def announced(database: Database, name: str) -> TaskInfo | None:
    with database.reading() as transaction:
        found = transaction.rows(sql.ANNOUNCED, {"name": check_name(name, "task")})
    return _task(found[0], database.dialect) if found else None


def announced_tasks(database: Database) -> list[TaskInfo]:
    with database.reading() as transaction:
        return [_task(row, database.dialect) for row in transaction.rows(sql.ALL_ANNOUNCED)]


def _checked(task: TaskInfo) -> TaskInfo:
    if task.version is not None:
        check_name(task.version, f"version of task {task.name}")
    check_json(task.defaults, f"defaults of task {task.name}")
    return task


def _task(row: Row, dialect: str) -> TaskInfo:
    name, version, kind, on_lost_lease, defaults = row
    return TaskInfo(name, version, Kind(kind), OnLostLease(on_lost_lease), rows.parsed(defaults, dialect))
