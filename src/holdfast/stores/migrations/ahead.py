"""Indexes that are built before the upgrade's transaction, while everybody goes on working.

On a large table an index takes long to build, and inside the transaction of an upgrade everybody would wait for it.
Postgres can build one beside the work (`CONCURRENTLY`), but in no transaction; so this comes first. It is a saving and
never a condition: a step of a migration makes every index that is not there, or is not valid, itself. An index that
somebody was killed over stays behind as invalid, and is taken away here by whoever comes next.

On a partitioned table Postgres builds none beside the work. It does on each partition, and the index that the step then
makes on the table takes those in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

# By the revision that brings them, on Postgres: name, table, and the rest of the statement.
INDEXES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "0003": (
        (
            "holdfast_jobs_finished",
            "holdfast_jobs",
            "(queue, state, finished_at) WHERE state IN ('succeeded', 'failed', 'cancelled')",
        ),
        (
            "holdfast_events_pruned",
            "holdfast_events",
            "((coalesce(detail ->> 'queue', '')), from_state, at, job_id) WHERE event = 'pruned'",
        ),
    ),
    "0004": (
        ("holdfast_events_at", "holdfast_events", "USING brin (at) WITH (pages_per_range = 16, autosummarize = on)"),
    ),
    "0005": (("holdfast_jobs_replays", "holdfast_jobs", "(replay_of) WHERE replay_of IS NOT NULL"),),
    "0007": (
        (
            "holdfast_jobs_task_ended",
            "holdfast_jobs",
            "(task, id) WHERE state IN ('succeeded', 'failed', 'cancelled')",
        ),
        (
            "holdfast_jobs_source_ended",
            "holdfast_jobs",
            "(source, id) WHERE source IS NOT NULL AND state IN ('succeeded', 'failed', 'cancelled')",
        ),
        (
            "holdfast_jobs_spec_ended",
            "holdfast_jobs",
            "(spec_hash) WHERE spec_hash IS NOT NULL AND state IN ('failed', 'cancelled')",
        ),
        ("holdfast_jobs_retryable", "holdfast_jobs", "(id) WHERE state = 'retryable'"),
        (
            "holdfast_events_seldom",
            "holdfast_events",
            "(event, at, job_id, seq) WHERE event IN ('retry_scheduled', 'crashed', 'lease_lost', 'failed',"
            " 'released', 'cancel_requested', 'cancelled', 'requeued')",
        ),
    ),
}

CANCEL_AGAIN_SECONDS = 1.0

_BROKEN = """
SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relname = :name AND pg_table_is_visible(pg_class.oid) AND NOT indisvalid
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index progress WHERE progress.index_relid = indexrelid)"""

_PARTITIONS = """
SELECT inhrelid, CAST(CAST(inhrelid AS regclass) AS text),
       EXISTS (SELECT FROM pg_class WHERE relname = :name AND pg_table_is_visible(pg_class.oid))
FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.relname = :table AND parent.relkind = 'p' AND pg_table_is_visible(parent.oid) ORDER BY 2"""


def build(engine: Engine, after: str, patience: float) -> None:
    """Build what the revisions after this one will want. Raises the database's error when it took too long."""
    wanted = [index for revision, indexes in sorted(INDEXES.items()) if revision > after for index in indexes]
    if engine.dialect.name != "postgresql" or not wanted:
        return
    with engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        for name, table, definition in _by_partition(connection, wanted):
            with _unhurried(connection), _cancelled_after(connection, patience):
                if connection.scalar(sa.text(_BROKEN), {"name": name}):
                    connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table} {definition}")


def _by_partition(connection: Connection, wanted: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """The same for each partition of a table that has some; without those that the table has already."""
    for name, table, definition in wanted:
        partitions = connection.execute(sa.text(_PARTITIONS), {"table": table, "name": name}).all()
        if partitions:
            yield from ((f"{name}_{oid}", partition, definition) for oid, partition, done in partitions if not done)
        else:
            yield name, table, definition


def create(connection: Connection, revision: str) -> None:
    """Inside the upgrade's transaction: what was not built ahead, or not to its end."""
    for name, table, definition in INDEXES[revision]:
        if connection.scalar(sa.text(_BROKEN), {"name": name}):
            connection.exec_driver_sql(f"DROP INDEX {name}")
        connection.exec_driver_sql(f"CREATE INDEX IF NOT EXISTS {name} ON {table} {definition}")


@contextmanager
def _unhurried(connection: Connection) -> Iterator[None]:
    """A limit meant for the application's queries must not cut off an index build."""
    connection.exec_driver_sql("SET statement_timeout = 0")
    try:
        yield
    finally:
        connection.exec_driver_sql("RESET statement_timeout")


@contextmanager
def _cancelled_after(connection: Connection, seconds: float) -> Iterator[None]:
    """The build waits for every transaction that is older than it, and one of them may have been forgotten.

    Cancels repeatedly: the server ignores a cancel request that arrives before the statement does.
    """
    driver: Any = connection.connection.driver_connection
    database_error: type[Exception] = connection.dialect.loaded_dbapi.Error
    ended = threading.Event()

    def cancel() -> None:
        pause = seconds
        while not ended.wait(pause):
            pause = CANCEL_AGAIN_SECONDS
            with suppress(database_error):
                driver.cancel_safe()

    thread = threading.Thread(target=cancel, name="holdfast-cancel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
