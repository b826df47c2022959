"""Databases of the chaos tests: how they are opened, moved in time, and proven sound afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from holdfast.maintenance.verify import verify
from holdfast.stores.database import utc_now
from holdfast.stores.histories import Histories
from holdfast.stores.postgres import open_postgres
from holdfast.stores.postgres_url import parse_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite
from holdfast.wiring.sql import open_store

Rows = list[tuple[Any, ...]]


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def sqlite_path(url: str) -> Path:
    return Path(make_url(url).database or "")


@contextmanager
def opened(url: str) -> Iterator[SqlStore]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def with_options(url: str, **options: str) -> str:
    """The URL of a Postgres database whose sessions have these settings."""
    settings = " ".join(f"-c{name}={value}" for name, value in options.items())
    return make_url(url).update_query_dict({"options": settings}).render_as_string(hide_password=False)


def conninfo(url: str) -> str:
    return parse_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def connect(url: str, *, autocommit: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
    """Somebody's own connection to Postgres."""
    return psycopg.connect(conninfo(url), autocommit=autocommit)


def query(url: str, statement: str) -> Rows:
    """The rows of one statement, on a connection of its own."""
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url), timeout=60, isolation_level=None)) as lite:
            lite.execute("PRAGMA wal_autocheckpoint = 0")
            return lite.execute(statement).fetchall()
    with connect(url, autocommit=True) as postgres:
        cursor = postgres.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def deadlocks(url: str) -> int:
    """How many the server has resolved in this database; always none on SQLite, which has a single lock."""
    if is_sqlite(url):
        return 0
    [(count,)] = query(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(count)


def assert_verified(url: str) -> None:
    """`holdfast verify` finds nothing, and on SQLite the file itself is sound."""
    with opened(url) as store:
        verdict = verify(Histories(store.database.engine))
    assert verdict.ok, verdict.violations[:10]
    assert verdict.jobs == query(url, "SELECT count(*) FROM holdfast_jobs")[0][0]
    if is_sqlite(url):
        assert query(url, "PRAGMA integrity_check") == [("ok",)]


class MovableClock:
    """A store whose clock the test moves forward: the host's clock on SQLite, `holdfast_now()` on Postgres."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._offset = timedelta(0)
        self.store = SqlStore(open_sqlite(url, clock=self._now) if is_sqlite(url) else open_postgres(url))

    def advance(self, seconds: float) -> None:
        self._offset += timedelta(seconds=seconds)
        if not isinstance(self.store.database, SqliteDatabase):
            offset = f"interval ''{self._offset.total_seconds()} seconds''"
            query(
                self._url,
                "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS 'SELECT clock_timestamp() + {offset}'",
            )

    def _now(self) -> datetime:
        return utc_now() + self._offset
