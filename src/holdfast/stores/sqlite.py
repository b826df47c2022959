"""SQLite: WAL, every write transaction begins IMMEDIATE, synchronous=FULL, the host's clock.

`BEGIN IMMEDIATE` takes the write lock at once, so a transaction never fails half-way because another one wrote first;
we ask for it every few milliseconds, for a minute or for `timeout_seconds`, before the caller is told that the store
stayed busy: "database is locked" itself reaches nobody.

Checkpoints are never automatic (see docs/decisions/0004): `checkpoint` runs them, one process at a time.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool, StaticPool

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.stores.checkpoint import Checkpointer
from holdfast.stores.database import Clock, CursorTransaction, Database, utc_now
from holdfast.stores.statements.words import SQLITE, Statement

OLDEST_VERSION = (3, 38, 0)
BUSY_TIMEOUT_SECONDS = 20.0
PATIENCE_SECONDS = 60.0


class SqliteDatabase(Database):
    dialect = SQLITE
    integrity_errors = (sqlite3.IntegrityError,)

    def __init__(
        self, engine: Engine, path: Path | None, clock: Clock = utc_now, patience: float = PATIENCE_SECONDS
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise ConfigurationError(f"SQLite {oldest} or later is needed; this one is {sqlite3.sqlite_version}")
        self.engine = engine
        self.path = path
        self._clock = clock
        self._patience = patience
        self._checkpointer = Checkpointer(path) if path is not None else None

    def now(self) -> datetime:
        return self._clock()

    @contextmanager
    def transaction(self, _settings: Statement | None = None) -> Iterator[CursorTransaction]:
        with self._connection() as driver, closing(driver.cursor()) as cursor:
            _begin(cursor, self._patience)
            try:
                # The time is read after the lock is held: a transaction that waited does not act in the past.
                yield CursorTransaction(cursor, SQLITE, self._clock())
                cursor.execute("COMMIT")
            except BaseException:
                if driver.in_transaction:  # SQLite rolls back by itself when the disk is full or fails
                    cursor.execute("ROLLBACK")
                raise
            if self._checkpointer is not None:
                self._checkpointer.after_commit(driver)

    statement = transaction

    def checkpoint(self) -> bool:
        if self._checkpointer is None or not self._checkpointer.is_due():
            return False
        with self._connection() as driver:
            return self._checkpointer.checkpoint(driver)

    @contextmanager
    def reading(self) -> Iterator[CursorTransaction]:
        with self._connection() as driver, closing(driver.cursor()) as cursor:
            yield CursorTransaction(cursor, SQLITE, self._clock())

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """The driver's own. A file that cannot be opened, read or written is said in our own words, whoever asks.

        Whoever takes a cursor of it closes that, also when something fails: a statement that is not through keeps its
        lock, and holds up the next commit, for as long as somebody has the error."""
        try:
            with self.engine.connect() as connection:
                yield connection.connection.driver_connection
        except (sqlite3.DatabaseError, DatabaseError) as error:
            said = error.orig if isinstance(error, DatabaseError) else error
            if not _is_outage(said):
                raise
            raise StoreUnavailable(f"the SQLite file cannot be used: {said}") from error


def _is_outage(error: BaseException | None) -> bool:
    """Without a subclass: the file is damaged, or is no database."""
    return type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError)


def _begin(cursor: Any, patience: float) -> None:
    """Wait for the write lock ourselves: SQLite's own handler sleeps longer the longer it has waited, and among busy
    processes one that waits may not get its turn for seconds."""
    cursor.execute("PRAGMA busy_timeout = 0")
    try:
        _when_free(lambda: cursor.execute("BEGIN IMMEDIATE"), patience)
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"the SQLite file cannot be written: {error}") from error
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {int(min(BUSY_TIMEOUT_SECONDS, patience) * 1000)}")


def _when_free(act: Callable[[], object], patience: float) -> None:
    """Try again while somebody else has the file locked."""
    deadline = time.monotonic() + patience
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"the SQLite file stayed locked for {patience:g} s by another process;"
                " a transaction is being held open somewhere"
            )
        time.sleep(random.uniform(0.0005, 0.004))


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def open_sqlite(
    url: str | URL, *, clock: Clock = utc_now, pool_size: int = 5, timeout_seconds: float | None = None
) -> SqliteDatabase:
    """Open the file, creating it when it is not there. `sqlite://` alone is a database in memory."""
    parsed = make_url(url)
    patience = PATIENCE_SECONDS if timeout_seconds is None else timeout_seconds
    in_memory = parsed.database in (None, "", ":memory:")
    options: dict[str, Any] = (
        {"poolclass": StaticPool} if in_memory else {"pool_size": pool_size, "max_overflow": pool_size}
    )
    engine = create_engine(
        parsed,
        connect_args={
            "timeout": min(BUSY_TIMEOUT_SECONDS, patience),
            "isolation_level": None,
            "check_same_thread": False,
        },
        **options,
    )
    event.listen(engine, "connect", lambda connection, _record: _prepare(connection, patience))
    # The driver is in autocommit and SQLAlchemy issues no BEGIN: our transactions say IMMEDIATE themselves.
    return SqliteDatabase(engine, None if in_memory else Path(parsed.database or ""), clock, patience)


def open_sqlite_for_reading(path: Path) -> SqliteDatabase:
    """On connections that write nothing and change no setting of the file, which must be there.

    Not mode=ro: that would leave the files of the write-ahead log behind, because only a writer may remove them."""

    def connect() -> sqlite3.Connection:
        file = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(file, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
        connection.execute("PRAGMA query_only = ON")
        return connection

    url = URL.create("sqlite", database=str(path))  # for messages: the connections are made above
    return SqliteDatabase(create_engine(url, creator=connect, poolclass=NullPool), None)


def _prepare(connection: Any, patience: float) -> None:
    # SQLite reads the file before it changes the mode of a new one, and who has read is not let wait for the lock.
    _when_free(lambda: connection.execute("PRAGMA journal_mode = WAL"), patience)
    for pragma in (
        "synchronous = FULL",
        "wal_autocheckpoint = 0",
        "foreign_keys = ON",
        "cache_size = -16000",
    ):
        connection.execute(f"PRAGMA {pragma}")
