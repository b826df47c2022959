"""Bring a database's tables and guards to what this Holdfast needs, and say whether they are.

An upgrade is one transaction: the old guards are taken away, the migrations run, the guards of this Holdfast
are installed. It changes everything or nothing, so after any interruption the way on is to run it again. Only indexes
on large tables are built before it, beside the work of everybody (`migrations/ahead.py`).

An upgrade records the oldest schema whose code runs on the result. A process accepts its own schema and a newer one
whose record includes it, so that two neighbouring releases start side by side. An upgrade by an older release changes
nothing (docs/decisions/0020).

`check` is for every start of every process: it costs two small queries and does not import Alembic, which is
slow.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, Engine, text
from sqlalchemy.exc import DBAPIError

from holdfast.domain.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from holdfast.forks import fork_safe
from holdfast.stores import guards
from holdfast.stores.guards import installed as guards_installed
from holdfast.stores.migrations import ahead, locking

VERSION_TABLE = "holdfast_schema_version"
UNNUMBERED_KEY = "guards"
INSTALLED_KEY = "installed"

# The head of the release before this one: its code runs on these tables and under these guards. What it still reads or
# writes is removed one release later.
COMPATIBLE_FROM = "0008"

_MIGRATIONS = Path(__file__).with_name("migrations")
_RETRY_PAUSE = (0.05, 0.5)

# The database understood and said no: the role, or the server, is the wrong one.
_INSUFFICIENT_PRIVILEGE = "42501"
_READ_ONLY_TRANSACTION = "25006"

# Alembic keeps the migration that is under way in module globals, so one process runs one at a time.
_one_migration = fork_safe(threading.Lock())

_TABLES_EXIST = {
    # Not by to_regclass: a session that once found no such table may remember that, even after it waited for the lock
    # under which another one made it.
    "postgresql": (
        f"SELECT count(*) = 2 FROM pg_class WHERE relname IN ('{VERSION_TABLE}', 'holdfast_meta')"
        " AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)"
    ),
    "sqlite": (
        f"SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' AND name IN ('{VERSION_TABLE}', 'holdfast_meta')"
    ),
}
_STATE = f"SELECT version_num, (SELECT value FROM holdfast_meta WHERE key = '{INSTALLED_KEY}') FROM {VERSION_TABLE}"
# Each row is a statement. On SQLite the view must go as well: no table is renamed there while a view or a
# trigger mentions one that is missing. On Postgres it stays: grants and other views may hang on it.
_REMOVALS = {
    "postgresql": (
        "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)"
        " FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE starts_with(tgname, 'holdfast_') AND NOT tgisinternal"
        " AND (starts_with(relname, 'holdfast_') AND pg_table_is_visible(pg_class.oid)"
        " OR tgrelid IN (SELECT inhrelid FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent"
        " WHERE parent.relname = 'holdfast_events' AND pg_table_is_visible(inhparent)))"
    ),
    "sqlite": (
        """SELECT 'DROP ' || type || ' "' || name || '"' FROM sqlite_master"""
        " WHERE (type = 'trigger' AND name GLOB 'holdfast_*' AND tbl_name GLOB 'holdfast_*')"
        " OR (type = 'view' AND name = 'holdfast_attempts')"
    ),
}
_REMEMBER = text(
    "INSERT INTO holdfast_meta (key, value) VALUES (:key, :value)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Installed(NamedTuple):
    """What a database has: a schema revision, and what the upgrade recorded with it."""

    revision: str | None
    guards: int = 0  # their number; 0: of a release that stored none
    fingerprint: str | None = None
    compatible_from: str | None = None  # the oldest schema whose code runs on this database


class Fit(Enum):
    """How a database relates to this Holdfast."""

    EMPTY = "no tables"
    OLDER = "an upgrade is due"
    CURRENT = "as this Holdfast installs it"
    NEWER = "of a newer release that includes this one"
    TOO_NEW = "of a newer release that does not include this one"


def head() -> str:
    """The revision that this Holdfast needs."""
    return _revisions()[-1]


def current(engine: Engine) -> str | None:
    """The revision that the database has; none in an empty database."""
    return _look(engine).revision


def check(engine: Engine) -> None:
    """Raise SchemaMismatch, saying what to do, unless this Holdfast runs on the database."""
    installed = _look(engine)
    match _fit(installed, engine.dialect.name):
        case Fit.EMPTY:
            raise SchemaMismatch("The database has no Holdfast tables yet: run `holdfast db upgrade`.")
        case Fit.TOO_NEW:
            raise _too_new(installed)
        case Fit.OLDER if installed.revision != head():
            raise SchemaMismatch(
                f"The database is at schema {installed.revision} and this Holdfast needs {head()}:"
                " run `holdfast db upgrade`."
            )
        case Fit.OLDER:
            raise SchemaMismatch(
                "The triggers in the database are not those of this Holdfast: run `holdfast db upgrade`."
            )


def describe_newer(engine: Engine) -> str | None:
    """What a newer release installed, if this Holdfast runs on it; else None."""
    installed = _look(engine)
    if _fit(installed, engine.dialect.name) is not Fit.NEWER:
        return None
    return (
        f"The database is at schema {installed.revision}, guards {installed.guards}, of a newer Holdfast;"
        f" this one (schema {head()}, guards {guards.NUMBER}) runs on it."
    )


def _fit(installed: Installed, dialect: str) -> Fit:
    if installed.revision is None:
        return Fit.EMPTY
    is_newer_schema = installed.revision not in _revisions()
    if is_newer_schema or installed.guards > guards.NUMBER:
        includes_us = installed.compatible_from is not None and installed.compatible_from <= head()
        return Fit.NEWER if includes_us and (is_newer_schema or installed.revision == head()) else Fit.TOO_NEW
    ours = (head(), guards.NUMBER, guards.fingerprint(dialect))
    return Fit.CURRENT if (installed.revision, installed.guards, installed.fingerprint) == ours else Fit.OLDER


def _too_new(installed: Installed) -> SchemaMismatch:
    return SchemaMismatch(
        f"The database is at schema {installed.revision} and was made by a newer Holdfast:"
        " upgrade the holdfast package."
    )


def upgrade(engine: Engine, *, lock_timeout: float = 0.8, patience: float = 60.0) -> tuple[str | None, str]:
    """Bring the database up to date; the revisions before and after. One of a newer release stays as it is.

    No lock is awaited longer than `lock_timeout` seconds, because everybody who comes later waits behind us: claims
    stall for less than a second, and we give way before Postgres would suspect a deadlock.
    An upgrade that did not get its locks is tried again, as a whole, until `patience` seconds are spent.
    """
    deadline = time.monotonic() + patience
    with _explained(engine):
        while True:
            try:
                _build_ahead(engine, _left(deadline))
                with locking.exclusive_transaction(engine, min(lock_timeout, _left(deadline))) as connection:
                    return _bring_up_to_date(connection)
            except DBAPIError as error:
                if not locking.is_contention(error):
                    raise
                if not _left(deadline):
                    raise _gave_up(engine, patience) from error
            time.sleep(min(random.uniform(*_RETRY_PAUSE), _left(deadline)))


def _build_ahead(engine: Engine, patience: float) -> None:
    """What takes long on large tables, before anybody has to wait for us."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        before = _installed(connection).revision
    if before is not None and before in _revisions():
        ahead.build(engine, before, patience)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _gave_up(engine: Engine, patience: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"The upgrade waited {patience:g} s for its locks and changed nothing. {locking.describe_holders(engine)}"
    )


def _bring_up_to_date(connection: Connection) -> tuple[str | None, str]:
    before = _installed(connection)
    match _fit(before, connection.dialect.name):
        case Fit.TOO_NEW:
            raise _too_new(before)
        case Fit.NEWER:
            assert before.revision is not None
            return before.revision, before.revision
        case Fit.CURRENT if _guards_are_in_force(connection):
            return before.revision, head()
    if before.revision is not None:
        locking.lock_tables(connection)
    _remove_guards(connection)
    if before.revision != head():
        _migrate(connection)
    _install_guards(connection)
    return before.revision, head()


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": VERSION_TABLE})
    # Alembic's options are those of an .ini file, where a percent sign interpolates.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with _one_migration:
        command.upgrade(config, "head")


def _guards_are_in_force(connection: Connection) -> bool:
    """All of them: one that was dropped or switched off behind our back comes back with the next upgrade."""
    dialect = connection.dialect.name
    found = {tuple(row) for row in _as_it_is(connection, guards_installed.QUESTION[dialect])}
    return {(*guard, True) for guard in guards_installed.expected(dialect)} <= found


def _remove_guards(connection: Connection) -> None:
    """Whatever their names: a trigger that only an earlier Holdfast had would go on enforcing its rules."""
    for [removal] in _as_it_is(connection, _REMOVALS[connection.dialect.name]).all():
        _as_it_is(connection, removal)


def _install_guards(connection: Connection) -> None:
    dialect = connection.dialect.name
    for statement in guards.statements(dialect):
        _as_it_is(connection, statement)
    record = {
        "schema": head(),
        "compatible_from": COMPATIBLE_FROM,
        "guards": guards.NUMBER,
        "fingerprint": guards.fingerprint(dialect),
    }
    for key, value in ((INSTALLED_KEY, json.dumps(record)), (UNNUMBERED_KEY, guards.UNNUMBERED[dialect])):
        connection.execute(_REMEMBER, {"key": key, "value": value})


def _as_it_is(connection: Connection, statement: str) -> CursorResult[Any]:
    """Run a statement in which no colon and no percent sign stands for a parameter."""
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _revisions() -> tuple[str, ...]:
    return tuple(sorted(step.name[:4] for step in (_MIGRATIONS / "versions").glob("[0-9]*.py")))


def _look(engine: Engine) -> Installed:
    if _is_missing_file(engine):
        return Installed(None)
    with _explained(engine), engine.connect() as connection:
        return _installed(connection)


def _is_missing_file(engine: Engine) -> bool:
    """SQLite makes a file by opening it; a mere look must not leave one behind."""
    if not _is_file(engine):
        return False
    try:
        return not Path(str(engine.url.database)).exists()
    except OSError:  # a path that cannot even be looked at: SQLite says so when it opens it
        return False


def _installed(connection: Connection) -> Installed:
    if not connection.exec_driver_sql(_TABLES_EXIST[connection.dialect.name]).scalar():
        return Installed(None)
    row = connection.exec_driver_sql(_STATE).one_or_none()
    return Installed(None) if row is None else _recorded(*row)


def _recorded(revision: str, text: str | None) -> Installed:
    """A record of another schema is ignored: a program without this record has changed the revision."""
    try:
        record = json.loads(text or "{}")
        compatible_from = record["compatible_from"] if record["schema"] == revision else None
        return Installed(revision, int(record["guards"]), record["fingerprint"], compatible_from)
    except (KeyError, TypeError, ValueError):
        return Installed(revision)


@contextmanager
def _explained(engine: Engine) -> Iterator[None]:
    """What a user can cause, in words; a statement that is wrong in itself stays the error that it is."""
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig).partition("\n")[0]
        if locking.sqlstate(error) in (_INSUFFICIENT_PRIVILEGE, _READ_ONLY_TRANSACTION):
            raise ConfigurationError(
                f"The database refused ({said}):"
                " connect to the primary server, as a role with rights on the Holdfast tables;"
                " to upgrade, as the role that owns them."
            ) from error
        if locking.is_outage(error):
            raise StoreUnavailable(f"{_named(engine)} failed: {said}") from error
        raise


def _named(engine: Engine) -> str:
    return f"The database file {engine.url.database}" if _is_file(engine) else f"The database at {engine.url!r}"


def _is_file(engine: Engine) -> bool:
    database = engine.url.database
    return engine.dialect.name == "sqlite" and bool(database) and not str(database).startswith((":memory:", "file:"))
