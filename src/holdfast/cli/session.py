"""What every command starts from: the options given before it, the settings, and the store they lead to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from holdfast.cli import output
from holdfast.domain.errors import ConfigurationError, HoldfastError, StoreUnavailable

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.settings import Settings
    from holdfast.stores.database import Database
    from holdfast.stores.sql_store import SqlStore

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class Session(NamedTuple):
    database: str | None = None
    json: bool = False

    def settings(self, **flags: str | None) -> Settings:
        from holdfast.settings import read_settings

        settings = read_settings({"database_url": self.database, **flags})
        check_lasting(settings.database_url)
        return settings


def check_lasting(url: str) -> None:
    if re.fullmatch(r"sqlite[^:]*:///?(:memory:.*)?", url):
        raise ConfigurationError("A database in memory ends with this command: name a file, sqlite:///path/to/file.db.")


def begin(context: typer.Context, json: bool) -> Session:
    """`--json` is accepted before the command as well as after it."""
    session = context.find_object(Session) or Session()
    return session._replace(json=session.json or json)


@contextmanager
def opened(settings: Settings, *, create: bool = False, named: bool = False) -> Iterator[SqlStore]:
    """The store of the settings. Only a command that stores something may create its file."""
    from holdfast.settings import CONTROL_PLANES

    name_store(settings.database_url, named)
    if settings.database_url.startswith(CONTROL_PLANES):
        with _remote(settings) as remote:
            yield remote
        return
    from holdfast.wiring.sql import open_store

    with explained():
        store = _published(open_store(settings.database_url, create=create, notify=settings.notify), settings)
        try:
            yield store
        finally:
            store.close()


def _published(store: SqlStore, settings: Settings) -> SqlStore:
    """With a Redis, what a command makes claimable is told there."""
    if settings.redis_url is None:
        return store
    from holdfast.wiring.redis import published

    return cast("SqlStore", published(store, settings))


@contextmanager
def _remote(settings: Settings) -> Iterator[SqlStore]:
    """A control plane in its place: what a command asks beyond its API is refused with what to do instead."""
    from holdfast.wiring.http import open_control_plane

    remote = open_control_plane(settings.database_url, settings.token)
    try:
        yield cast("SqlStore", remote)
    finally:
        remote.close()


@contextmanager
def opened_database(settings: Settings, *, create: bool, named: bool = True) -> Iterator[Database]:
    """The database alone, whatever schema it has."""
    from holdfast.wiring.sql import open_database

    name_store(settings.database_url, named)
    with explained():
        database = open_database(settings.database_url, create=create)
        try:
            yield database
        finally:
            database.close()


def store_time(store: SqlStore) -> datetime:
    """By the store's own clock, where its times come from."""
    return store.feed(None).now


def name_store(url: str, named: bool) -> None:
    """People are told which store they are looking at; programs know."""
    if named or sys.stderr.isatty():
        from holdfast.settings import mask_url

        output.remark(f"store: {mask_url(url)}")


@contextmanager
def explained() -> Iterator[None]:
    """The verbs say in words what an operator is likely to cause. This is for the rest, a damaged file say."""
    try:
        yield
    except (HoldfastError, typer.Exit):
        raise
    except Exception as error:
        if (explanation := _explanation(error)) is not None:
            raise explanation from error
        raise


def _explanation(error: Exception) -> HoldfastError | None:
    """None for what is no fault of a database, and for a statement that is wrong in itself: they keep their traceback.

    The drivers are imported here: on SQLite nobody needs psycopg, and before the store is open nobody needs either.
    """
    import sqlite3

    import psycopg
    from sqlalchemy.exc import DBAPIError

    our_faults = (
        psycopg.IntegrityError,
        psycopg.ProgrammingError,
        sqlite3.IntegrityError,
        sqlite3.ProgrammingError,
    )
    cause = error.orig if isinstance(error, DBAPIError) else error
    said = str(cause).strip().partition("\n")[0]
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return ConfigurationError(f"The database refused ({said}): connect as a role with more rights.")
    if isinstance(cause, our_faults) or not isinstance(
        error, DBAPIError | psycopg.DatabaseError | sqlite3.DatabaseError
    ):
        return None
    return StoreUnavailable(f"The database failed: {said}")
