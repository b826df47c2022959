"""The one place that knows concrete classes: from a URL to a store that is ready to use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ArgumentError

from holdfast.domain.errors import ConfigurationError, NotFound, SchemaMismatch
from holdfast.domain.history import History
from holdfast.stores import upgrade
from holdfast.stores.database import Database
from holdfast.stores.histories import Histories
from holdfast.stores.postgres import PostgresDatabase, open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite

__all__ = ["histories", "open_database", "open_store"]


def open_database(url: str | Engine, *, create: bool = True) -> Database:
    """The database behind a URL, or the user's own engine. With `create=False` a file that is not there is an error."""
    if isinstance(url, Engine):
        return _from_engine(url)
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError(f"the database URL cannot be read: {error}") from error
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return open_postgres(parsed)
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not create and parsed.database and not Path(parsed.database).exists():
            raise NotFound(f"there is no database file {parsed.database}")
        return open_sqlite(parsed)
    raise ConfigurationError(
        f"{parsed.drivername} is not a store Holdfast runs on: use postgresql://… or sqlite:///path/to/file.db"
    )


def open_store(url: str | Engine, *, create: bool = True) -> SqlStore:
    """A store whose schema fits. An embedded SQLite file upgrades itself; Postgres is upgraded by a command."""
    database = open_database(url, create=create)
    try:
        _make_fit(database, may_upgrade=create and isinstance(database, SqliteDatabase))
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


def _make_fit(database: Database, *, may_upgrade: bool) -> None:
    try:
        upgrade.check(database.engine)
    except SchemaMismatch:
        if not may_upgrade:
            raise
        upgrade.upgrade(database.engine)


def histories(store: SqlStore) -> Iterable[History]:
    """Every job with its history, for `maintenance.verify`."""
    return Histories(store.database.engine)


def _from_engine(engine: Engine) -> Database:
    if engine.dialect.name == "postgresql" and engine.driver == "psycopg":
        return PostgresDatabase(engine)
    raise ConfigurationError(
        "an engine must be on postgresql+psycopg; for SQLite give the URL: the store sets up its own connections"
    )
