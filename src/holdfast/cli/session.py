"""What every command starts from: the options given before it, the settings, and the store they lead to."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.settings import Settings, mask_url, read_settings

if TYPE_CHECKING:
    from holdfast.stores.database import Database
    from holdfast.stores.sql_store import SqlStore

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class Session:
    database: str | None = None
    json: bool = False

    def settings(self) -> Settings:
        settings = read_settings({"database_url": self.database})
        if re.fullmatch(r"sqlite[^:]*:///?(:memory:.*)?", settings.database_url):
            raise ConfigurationError(
                "A database in memory ends with this command: name a file, sqlite:///path/to/file.db."
            )
        return settings


def begin(context: typer.Context, json: bool) -> Session:
    """`--json` is accepted before the command as well as after it."""
    session = context.find_object(Session) or Session()
    return replace(session, json=session.json or json)


@contextmanager
def opened(settings: Settings, *, create: bool = False, named: bool = False) -> Iterator[SqlStore]:
    """The store of the settings. Only a command that stores something may create its file."""
    from holdfast.wiring import open_store

    name_store(settings.database_url, named)
    with _explained():
        store = open_store(settings.database_url, create=create, notify=settings.notify)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def opened_database(settings: Settings, *, create: bool, named: bool = True) -> Iterator[Database]:
    """The database alone, whatever schema it has."""
    from holdfast.wiring import open_database

    name_store(settings.database_url, named)
    with _explained():
        database = open_database(settings.database_url, create=create)
        try:
            yield database
        finally:
            database.close()


def name_store(url: str, named: bool) -> None:
    """People are told which store they are looking at; programs know."""
    if named or sys.stderr.isatty():
        output.remark(f"store: {mask_url(url)}")


@contextmanager
def _explained() -> Iterator[None]:
    """The verbs say in words what an operator is likely to cause. This is for the rest, a damaged file say."""
    import psycopg
    from sqlalchemy.exc import DBAPIError

    # A statement that is wrong in itself keeps its traceback.
    our_faults = (
        psycopg.IntegrityError,
        psycopg.ProgrammingError,
        sqlite3.IntegrityError,
        sqlite3.ProgrammingError,
    )
    try:
        yield
    except (DBAPIError, psycopg.DatabaseError, sqlite3.DatabaseError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = str(cause).strip().partition("\n")[0]
        if isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise ConfigurationError(f"The database refused ({said}): connect as a role with more rights.") from error
        if isinstance(cause, our_faults):
            raise
        raise StoreUnavailable(f"The database failed: {said}") from error
