"""Connections and transactions, so that a verb is only its statements and its decisions.

A `Transaction` runs rendered statements on one connection. `Database.transaction()` opens one of the store's own;
`borrow` wraps a connection of the user's, which the user commits or rolls back.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakSet

from sqlalchemy import Connection, Engine, text

from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.forks import after_fork, cut_off, notice_fork
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.types import to_text

Row = Sequence[Any]
Parameters = Mapping[str, Any]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


class SessionLost(StoreUnavailable):
    """The session broke or leads to a standby; a new one may work. Whether the statement was executed is unknown."""


class Transaction(Protocol):
    dialect: str

    def rows(self, statement: Statement, parameters: Parameters | None = None) -> list[Row]:
        """Run a statement that returns rows."""
        ...

    def run(self, statement: Statement, parameters: Parameters | None = None) -> None:
        """Run a statement that returns none."""
        ...


class CursorTransaction:
    """On a driver's own cursor: no layer between the rendered text and the database."""

    def __init__(self, cursor: Any, dialect: str, now: datetime | None) -> None:
        self.cursor = cursor
        self.dialect = dialect
        self._fixed = {} if now is None else {"now": to_text(now)}

    def rows(self, statement: Statement, parameters: Parameters | None = None) -> list[Row]:
        self.run(statement, parameters)
        found: list[Row] = self.cursor.fetchall()
        return found

    def run(self, statement: Statement, parameters: Parameters | None = None) -> None:
        known = {**self._fixed, **(parameters or {})}
        if statement.replan and self.dialect == POSTGRES:
            self.cursor.execute(statement.driver_sql(self.dialect), known, prepare=False)
        else:
            self.cursor.execute(statement.driver_sql(self.dialect), known)


class BorrowedTransaction:
    """On the user's SQLAlchemy connection, whatever its driver."""

    def __init__(self, connection: Connection, now: datetime | None) -> None:
        self.connection = connection
        self.dialect = connection.dialect.name
        self._fixed = {} if now is None else {"now": to_text(now)}

    def rows(self, statement: Statement, parameters: Parameters | None = None) -> list[Row]:
        return [tuple(row) for row in self._execute(statement, parameters)]

    def run(self, statement: Statement, parameters: Parameters | None = None) -> None:
        self._execute(statement, parameters)

    def _execute(self, statement: Statement, parameters: Parameters | None) -> Any:
        sql = statement.sql(self.dialect)
        fixed = self._fixed if ":now" in sql else {}
        return self.connection.execute(text(sql), {**fixed, **(parameters or {})})


class Database(ABC):
    dialect: str
    engine: Engine
    integrity_errors: tuple[type[Exception], ...]
    lock_errors: tuple[type[Exception], ...] = ()  # a lock was waited for no longer
    content_errors: tuple[type[Exception], ...]  # the database cannot hold what it was given: SQLSTATE class 22 or 23

    @abstractmethod
    def transaction(self, settings: Statement | None = None) -> AbstractContextManager[CursorTransaction]:
        """Several statements, all or nothing. `settings`: a statement that goes first, where it means anything."""

    @abstractmethod
    def statement(self) -> AbstractContextManager[CursorTransaction]:
        """One statement, committed by itself."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[CursorTransaction]:
        """One statement that only reads."""

    @abstractmethod
    def now(self) -> datetime | None:
        """The time to hand to statements; None where the database has a clock of its own."""

    def borrow(self, connection: Any) -> Transaction:
        """The user's connection, session or psycopg connection as a transaction."""
        borrowed = borrow(connection, self.now())
        if borrowed is None:
            raise InvalidInput(
                "connection",
                "must be a SQLAlchemy Connection or Session, or a psycopg connection; with an AsyncSession,"
                f" AsyncConnection use aenqueue; got {type(connection).__name__}",
            )
        if borrowed.dialect != self.dialect:
            raise InvalidInput("connection", f"is to {borrowed.dialect}, but this store is on {self.dialect}")
        return borrowed

    def kept(self) -> int:
        """How many of the connections that the pool has given away are not in use."""
        return 0

    def checkpoint(self) -> bool:
        """Empty a write-ahead log that has grown long; True when that was done. Servers do it by themselves."""
        return False

    def close(self) -> None:
        self.engine.dispose()


class ContentCheck:
    """Raises InvalidInput for content that the database cannot store: only then may a caller replace the content.

    No generator: every enqueue, heartbeat and report passes here."""

    __slots__ = ("_database", "_field")

    def __init__(self, database: Database, field: str) -> None:
        self._database = database
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and isinstance(error, self._database.content_errors):
            # Without the details, which show the whole row: the message may go to a client of a control plane.
            rule = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InvalidInput(self._field, f"the database does not take it: {rule}") from error


def borrow(connection: Any, now: datetime | None) -> Transaction | None:
    """A transaction on what the user handed in; None when it is nothing that can be borrowed."""
    notice_fork()
    if _is_session(connection):
        connection = connection.connection()
    if isinstance(connection, Connection):
        _passed.check(connection)
        return BorrowedTransaction(connection, now)
    if _is_psycopg(connection):
        _passed.check(connection)
        return CursorTransaction(_tuple_cursor(connection), POSTGRES, None)
    return None


class _PassedConnections:
    """The connections that callers passed in: none may be used on both sides of a fork.

    A child that leaves the caller's block by an exception, such as SystemExit, would roll back the parent's
    transaction, and the parent would commit nothing. So the child cannot reach the server by them."""

    def __init__(self) -> None:
        self._known: WeakSet[Any] = WeakSet()
        self._inherited: WeakSet[Any] = WeakSet()
        after_fork(self._after_fork)

    def check(self, connection: Any) -> None:
        if connection in self._inherited:
            raise InvalidInput(
                "connection",
                "was opened before this process was forked, and its transaction is the parent's; open a connection in"
                " this process",
            )
        self._known.add(connection)

    def _after_fork(self) -> None:
        self._inherited.update(self._known)
        cut_off(_descriptor(connection) for connection in list(self._known))


def _descriptor(connection: Any) -> int:
    """The socket of a connection that a caller passed in; -1 if it has none or is closed."""
    try:
        driver: Any = connection.connection.driver_connection if isinstance(connection, Connection) else connection
        return int(driver.fileno())
    except Exception:  # of whatever driver
        return -1


_passed = _PassedConnections()


def _is_session(connection: Any) -> bool:
    orm = sys.modules.get("sqlalchemy.orm")  # whoever has a session has imported it
    return orm is not None and isinstance(connection, orm.Session | orm.scoped_session)


def _is_psycopg(connection: Any) -> bool:
    return any(f"{kind.__module__}.{kind.__name__}" == "psycopg.Connection" for kind in type(connection).__mro__)


def _tuple_cursor(connection: Any) -> Any:
    from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)
