"""SQLite through a driver whose n-th statement fails: there is no server to be cut off from, so the disk fails."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine, event

from holdfast.stores.sqlite_files import FileConnection
from tests.nth_step.fault import Fault, Moment

Answer = TypeVar("Answer")
Break = Callable[[sqlite3.Connection], None]


def disk_fails(_connection: sqlite3.Connection) -> None:
    raise _error(sqlite3.OperationalError("disk I/O error"), sqlite3.SQLITE_IOERR)


def disk_is_full(connection: sqlite3.Connection) -> None:
    """SQLite then rolls the transaction back by itself."""
    if connection.in_transaction:
        sqlite3.Connection.cursor(connection, sqlite3.Cursor).execute("ROLLBACK")
    raise _error(sqlite3.OperationalError("database or disk is full"), sqlite3.SQLITE_FULL)


def file_is_malformed(_connection: sqlite3.Connection) -> None:
    """A page that was read is not what was written: to Python that is not an operational error."""
    raise _error(sqlite3.DatabaseError("database disk image is malformed"), sqlite3.SQLITE_CORRUPT)


def process_dies(_connection: sqlite3.Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _error(error: sqlite3.Error, code: int) -> sqlite3.Error:
    error.sqlite_errorcode = code
    return error


def break_at(engine: Engine, fault: Fault, break_: Break = disk_fails) -> None:
    """From the first connection on: so this comes before anybody has used the engine."""

    def connect(_dialect: Any, _record: Any, arguments: Any, named: Any) -> sqlite3.Connection:
        connection: BreakableConnection = sqlite3.connect(*arguments, **{**named, "factory": BreakableConnection})
        connection.fault, connection.break_ = fault, break_
        return connection

    event.listen(engine, "do_connect", connect)


class BreakableConnection(FileConnection):
    fault: Fault
    break_: Break

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or BreakableCursor)

    def commit(self) -> None:
        if self.in_transaction:
            self.stepping(super().commit)

    def rollback(self) -> None:
        if self.in_transaction:
            self.stepping(super().rollback)

    def stepping(self, act: Callable[[], Answer]) -> Answer:
        moment = self.fault.step()
        if moment is Moment.BEFORE:
            self.break_(self)
        answer = act()
        if moment is Moment.AFTER:
            self.break_(self)
        return answer


class BreakableCursor(sqlite3.Cursor):
    connection: BreakableConnection

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        return self.connection.stepping(lambda: super(BreakableCursor, self).execute(sql, parameters))
