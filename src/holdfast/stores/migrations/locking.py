"""The transaction an upgrade runs in: alone, all or nothing, and never waiting for a lock without end.

Everything an upgrade does is in this one transaction on both dialects, so a process that is killed anywhere
leaves the database as it was. No other upgrade can run beside it: an advisory lock on Postgres, and the write
lock on SQLite, keep it out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

ADVISORY_KEY = int.from_bytes(b"holdfast")

# The order in which the verbs lock them: retention begins at the watermark, everything else at the job. Locked in
# another order, an upgrade and a worker could each wait for the other.
_GUARDED_TABLES = "holdfast_meta, holdfast_retired_histories, holdfast_jobs, holdfast_events"

_LOCK_NOT_AVAILABLE = "55P03"
_DEADLOCK_DETECTED = "40P01"
_QUERY_CANCELED = "57014"  # our own patience with an index build has run out

# Whoever holds a lock on one of our tables, or the upgrades' own lock; longest transaction first. What a role
# may not see of another's session is null.
_HOLDERS = f"""
SELECT pid, usename, application_name, state, query_start FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND pid IN (
  SELECT held.pid FROM pg_locks held
  WHERE held.granted AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (held.relation IN (SELECT oid FROM pg_class WHERE starts_with(relname, 'holdfast_'))
         OR (held.locktype = 'advisory' AND held.objsubid = 1
             AND held.classid = {ADVISORY_KEY >> 32} AND held.objid = {ADVISORY_KEY & 0xFFFFFFFF})))
ORDER BY xact_start NULLS LAST LIMIT 3"""


@contextmanager
def exclusive_transaction(engine: Engine, lock_timeout: float) -> Iterator[Connection]:
    """A transaction beside which no other upgrade runs, and in which no lock is awaited longer than this."""
    milliseconds = max(1, round(lock_timeout * 1000))  # to Postgres, 0 means for ever
    begin = _begin_postgres if engine.dialect.name == "postgresql" else _begin_sqlite
    with begin(engine, milliseconds) as connection:
        yield connection


@contextmanager
def _begin_postgres(engine: Engine, milliseconds: int) -> Iterator[Connection]:
    # The engine may be in autocommit; and under a stricter level we would not see, after the wait, what the
    # other upgrade did.
    with engine.connect() as connection:
        connection.execution_options(isolation_level="READ COMMITTED")
        with connection.begin():
            _lock_out_other_upgrades(connection, milliseconds)
            yield connection


def _lock_out_other_upgrades(connection: Connection, milliseconds: int) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
    # A limit meant for the application's queries must not cut off an index build.
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_KEY})")


@contextmanager
def _begin_sqlite(engine: Engine, milliseconds: int) -> Iterator[Connection]:
    with engine.connect() as connection:
        driver_connection: Any = connection.connection.driver_connection
        with _busy_timeout(driver_connection, milliseconds), connection.begin():
            # sqlite3 by itself opens no transaction for DDL. An engine with a hook of its own may just have
            # opened one, but perhaps a deferred one, which would take the write lock only after we looked.
            if driver_connection.in_transaction:
                connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


@contextmanager
def _busy_timeout(driver_connection: Any, milliseconds: int) -> Iterator[None]:
    [usual] = driver_connection.execute("PRAGMA busy_timeout").fetchone()
    driver_connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        driver_connection.execute(f"PRAGMA busy_timeout = {usual}")


def lock_tables(connection: Connection) -> None:
    """Take what a change of triggers needs before anything else is done, and in the one good order."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {_GUARDED_TABLES} IN ACCESS EXCLUSIVE MODE")


def sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def is_contention(error: DBAPIError) -> bool:
    """Whether somebody else was in the way, so that to try again may help."""
    if isinstance(error.orig, sqlite3.Error):
        # The lower byte is the error, the rest its variety; errors of the module itself have no code.
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return sqlstate(error) in (_LOCK_NOT_AVAILABLE, _DEADLOCK_DETECTED, _QUERY_CANCELED)


def is_outage(error: DBAPIError) -> bool:
    """Whether the database failed us, rather than was told something wrong."""
    # Without a subclass: a file that is not a database. And wrong SQL on SQLite is an operational error to Python.
    return (
        type(error) in (DatabaseError, OperationalError)
        and getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
    )


def describe_holders(engine: Engine) -> str:
    """Who is in the way and what to do about it, in one or two sentences."""
    if engine.dialect.name != "postgresql":
        return (
            f"Another process is writing to {engine.url.database}."
            " Wait for it or stop it, then run `holdfast db upgrade` again."
        )
    with engine.connect() as connection:
        holders = connection.exec_driver_sql(_HOLDERS).all()
    if not holders:
        return "Their holder is gone by now: run `holdfast db upgrade` again."
    return (
        f"They are held by {'; '.join(map(_describe, holders))}."
        " Wait for that to end, or end it with pg_terminate_backend(pid),"
        " then run `holdfast db upgrade` again."
    )


def _describe(holder: Row[Any]) -> str:
    facts = [f"user {holder.usename}"]
    if holder.application_name:
        facts.append(f"application {holder.application_name}")
    if holder.state:
        facts.append(holder.state)
    if holder.query_start:
        facts.append(f"last query started {_in_utc(holder.query_start)}")
    return f"pid {holder.pid} ({', '.join(facts)})"


def _in_utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
