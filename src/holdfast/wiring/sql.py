"""From a database URL, or an engine, to a store that is ready to use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Engine
from sqlalchemy.exc import ArgumentError

from holdfast.artifacts.opening import artifacts_root, check_for_worker, open_artifacts
from holdfast.domain.errors import ConfigurationError, NotFound, SchemaMismatch
from holdfast.stores import upgrade
from holdfast.stores.postgres_url import parse_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite, open_sqlite_for_reading
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs.settle_in import complete_in
from holdfast.transports.sqlite_changes import ChangeCheck

if TYPE_CHECKING:
    from holdfast.ports import Store
    from holdfast.stores.database import Database
    from holdfast.stores.histories import Histories
    from holdfast.stores.references import References
    from holdfast.transports.pg_listen import Listener
    from holdfast.transports.pg_probe import Hearing

__all__ = [
    "artifacts_root",
    "check_for_worker",
    "check_schema",
    "complete_in",
    "hearing",
    "histories",
    "open_artifacts",
    "open_database",
    "open_for_reading",
    "open_store",
    "open_wake_up",
    "references",
]

_POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")
_SQLITE = ("sqlite", "sqlite+pysqlite")


def open_database(
    url: str | Engine, *, create: bool = True, timeout_seconds: float | None = None, pool_size: int | None = None
) -> Database:
    """The database behind a URL, or the user's own engine. With `create=False` a file that is not there is an error.

    `timeout_seconds` bounds every wait; with an engine of the user's, timeouts and pool are the user's own.
    """
    if isinstance(url, Engine):
        return _from_engine(url)
    parsed = _parsed(url)
    pool_size = pool_size or 5
    if parsed.drivername in _POSTGRES:
        from holdfast.wiring.postgres import open_postgres

        return open_postgres(parsed, pool_size=pool_size, timeout_seconds=timeout_seconds)
    if parsed.drivername in _SQLITE:
        if parsed.database and not _is_there(parsed.database) and not create:
            raise NotFound(f"there is no database file {parsed.database}")
        return open_sqlite(parsed, pool_size=pool_size, timeout_seconds=timeout_seconds)
    if parsed.drivername in ("https", "http"):
        raise ConfigurationError(
            "this is done on the database itself, and the URL is a control plane's: use postgresql://… or"
            " sqlite:///path/to/file.db"
        )
    raise ConfigurationError(
        f"{parsed.drivername} is not a store Holdfast runs on: use postgresql://… or sqlite:///path/to/file.db"
    )


def open_for_reading(url: str, timeout_seconds: float) -> Database:
    """To look and change nothing; an SQLite file must be there."""
    parsed = _parsed(url)
    if parsed.drivername in _POSTGRES:
        from holdfast.wiring import postgres

        return postgres.open_for_reading(parsed, timeout_seconds)
    if parsed.drivername not in _SQLITE:
        return open_database(url)
    if parsed.database in (None, "", ":memory:"):
        raise ConfigurationError("a database in memory is nobody else's: name a file, sqlite:///path/to/file.db")
    if not _is_there(parsed.database):
        raise NotFound(f"there is no database file {parsed.database}")
    return open_sqlite_for_reading(Path(parsed.database))


def _is_there(file: str) -> bool:
    try:
        return Path(file).exists()
    except OSError as error:
        raise ConfigurationError(
            f"the database file {file} cannot be used: {error.strerror}; name one in a folder that this user may enter"
        ) from error


def hearing(database: Database, listen_url: str, within: float) -> Hearing:
    """Whether a notification of this store would wake somebody who listens at that URL."""
    from holdfast.wiring import postgres

    return postgres.hearing(database, listen_url, within)


def _parsed(url: str) -> URL:
    try:
        return parse_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(f"the database URL cannot be read: {error}") from error


def open_store(
    url: str | Engine,
    *,
    create: bool = True,
    timeout_seconds: float | None = None,
    pool_size: int | None = None,
    notify: bool = True,
) -> SqlStore:
    """A store whose schema fits. An embedded SQLite file upgrades itself; Postgres is upgraded by a command.

    With `notify` a Postgres store wakes listening workers after its own commits.
    """
    database = open_database(url, create=create, timeout_seconds=timeout_seconds, pool_size=pool_size)
    try:
        _make_fit(database, may_upgrade=create and isinstance(database, SqliteDatabase))
    except BaseException:
        database.close()
        raise
    if not notify or database.dialect != POSTGRES:
        return SqlStore(database)
    from holdfast.wiring import postgres

    notifier = postgres.notifier(database)
    return SqlStore(database, notifier.poke, notifier.close)


def open_wake_up(
    database_url: str,
    ring: Callable[[], None],
    notify: bool,
    status: Callable[[str], None] = lambda _status: None,
    listen_url: str | None = None,
) -> Listener | ChangeCheck | None:
    """What tells a worker early that there may be something to claim; None where only polling does. `status` hears of
    the listener's state, in the listener's thread. `listen_url` leads to the same database, past a pooler."""
    parsed = _parsed(database_url)
    if parsed.drivername in _POSTGRES and notify:
        from holdfast.wiring import postgres

        return postgres.start_listener(listen_url or parsed, ring, status)
    if parsed.drivername in _SQLITE and parsed.database not in (None, "", ":memory:"):
        return ChangeCheck(parsed.database)
    return None


def check_schema(store: Store) -> None:
    """That the store answers, and that its schema is still the one that this Holdfast needs."""
    assert isinstance(store, SqlStore)
    upgrade.check(store.database.engine)


def _make_fit(database: Database, *, may_upgrade: bool) -> None:
    try:
        upgrade.check(database.engine)
    except SchemaMismatch:
        if not may_upgrade:
            raise
        upgrade.upgrade(database.engine)


def histories(store: SqlStore) -> Histories:
    """Every job with its history, for `maintenance.verify`."""
    from holdfast.stores.histories import Histories

    return Histories(store.database.engine)


def references(store: SqlStore) -> References:
    """What speaks of jobs that are gone, for `maintenance.verify`."""
    from holdfast.stores.references import References

    return References(store.database.engine)


def _from_engine(engine: Engine) -> Database:
    if engine.dialect.name == "postgresql" and engine.driver == "psycopg":
        from holdfast.wiring import postgres

        return postgres.from_engine(engine)
    raise ConfigurationError(
        "an engine must be on postgresql+psycopg; for SQLite give the URL: the store sets up its own connections"
    )
