"""Jobs that succeeded weeks ago, in any number, with the histories that they would have left."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.stores import guards
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.types import to_text

_JOB = "id, task, queue, state, attempt, seq, transition, created_at, updated_at, started_at, finished_at"
_EVENT = "job_id, seq, at, event, from_state, to_state, attempt, worker, lease"


def load_finished(store: SqlStore, count: int, queue: str = "old", first: int = 1) -> list[str]:
    """They ended one a second, from two months ago on. Written past the guards, which are in force again after it."""
    load = _load_postgres if store.database.dialect == "postgresql" else _load_sqlite
    load(store, first, count, queue)
    return [f"00000000-0000-7000-8000-{number:012x}" for number in range(first, first + count)]


def _rows(identity: str, moment: str, queue: str) -> tuple[str, str]:
    job = (
        f"SELECT {identity}, 'noop', '{queue}', 'succeeded', 1, 3, 'succeeded', {moment}, {moment}, {moment}, {moment}"
        " FROM numbers"
    )
    steps = (
        f"SELECT {identity}, 1, {moment}, 'enqueued', NULL, 'pending', 0, NULL, NULL FROM numbers",
        f"SELECT {identity}, 2, {moment}, 'claimed', 'pending', 'running', 1, 'old', 'lease' || n FROM numbers",
        f"SELECT {identity}, 3, {moment}, 'succeeded', 'running', 'succeeded', 1, 'old', 'lease' || n FROM numbers",
    )
    return job, " UNION ALL ".join(steps)


def _load_postgres(store: SqlStore, first: int, count: int, queue: str) -> None:
    identity = "CAST('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid)"
    job, events = _rows(identity, "now() - interval '60 days' + n * interval '1 second'", queue)
    numbers = f"WITH numbers AS (SELECT n FROM generate_series({first}, {first + count - 1}) n)"
    with store.database.engine.connect() as connection:
        for statement in (
            "BEGIN",
            "SET LOCAL session_replication_role = replica",
            f"{numbers} INSERT INTO holdfast_jobs ({_JOB}) {job}",
            f"{numbers} INSERT INTO holdfast_events ({_EVENT}) {events}",
            "COMMIT",
        ):
            connection.exec_driver_sql(statement)


def _load_sqlite(store: SqlStore, first: int, count: int, queue: str) -> None:
    identity = "printf('00000000-0000-7000-8000-%012x', n)"
    moment = f"strftime('%Y-%m-%dT%H:%M:%f', '{to_text(datetime.now(UTC))}', '-60 days', n || ' seconds') || '000Z'"
    job, events = _rows(identity, moment, queue)
    end = first + count - 1
    numbers = f"WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {end})"
    with store.database.engine.connect() as connection:
        triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all()
        for statement in (
            "BEGIN IMMEDIATE",
            *(f"DROP TRIGGER {name}" for name in triggers),
            f"{numbers} INSERT INTO holdfast_jobs ({_JOB}) {job}",
            f"{numbers} INSERT INTO holdfast_events ({_EVENT}) {events} ORDER BY 1, 2",
            *guards.statements("sqlite"),
            "COMMIT",
        ):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
