"""SQLite: WAL, every write transaction begins IMMEDIATE, synchronous=FULL, the host's clock.

`BEGIN IMMEDIATE` takes the write lock at once, so a transaction never fails half-way because another one wrote first;
we ask for it every few milliseconds, for a minute or for `timeout_seconds`, before the caller is told that the store
stayed busy: "database is locked" itself reaches nobody.

Checkpoints are never automatic (see docs/decisions/0004): `checkpoint` runs them, one process at a time.

No write goes to a file that was replaced under a running process: see `sqlite_files`.

No connection is carried across a fork. SQLite keeps its locks on a file per process, in memory that a child inherits:
beside an inherited connection, a new one of the child holds no lock on the file, and another process may remove the
write-ahead log under it, or empty the log's index, which ends the child with SIGBUS. So the parent closes its
connections before it forks, and opens them again when needed. A child that still has the file open refuses it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool, QueuePool, StaticPool

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.forks import after_fork, before_fork, gate, leak, notice_fork
from holdfast.stores.checkpoint import Checkpointer
from holdfast.stores.database import Clock, CursorTransaction, Database, Parameters, Row, utc_now
from holdfast.stores.sqlite_files import (
    FileConnection,
    FileReplaced,
    OpenFiles,
    describe_replaced,
    identify,
    is_open_here,
    may_open,
)
from holdfast.stores.statements.words import SQLITE, Statement

OLDEST_VERSION = (3, 38, 0)
BUSY_TIMEOUT_SECONDS = 20.0
PATIENCE_SECONDS = 60.0

_COUNTED = "_holdfast_counted"  # of a pool's record: it is in use, and `gate` counts it


class _PostponesForks(Pool):
    """No thread forks while another one uses a connection: SQLite would stay locked in the child, in mid-statement."""

    def _do_get(self) -> ConnectionPoolEntry:
        gate.enter()
        try:
            record: Any = super()._do_get()
        except BaseException:
            gate.leave()
            raise
        if getattr(record, _COUNTED, False):  # QueuePool calls itself again when another thread was quicker
            gate.leave()
        setattr(record, _COUNTED, True)
        return cast(ConnectionPoolEntry, record)

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        setattr(record, _COUNTED, False)  # before another thread can take it
        try:
            super()._do_return_conn(record)
        finally:
            gate.leave()


class _FilePool(_PostponesForks, QueuePool):
    """Of a file."""


class _MemoryPool(_PostponesForks, StaticPool):
    """Of a database in memory, of which a child has a copy of its own."""


class _ReadingPool(_PostponesForks, NullPool):
    """Of a file that is only examined."""


# Bytes that are no UTF-8 become escapes that JSON does not have: such a payload fails its own job.
_READ_ANY_TEXT = partial(str, encoding="utf-8", errors="backslashreplace")


class _SqliteTransaction(CursorTransaction):
    """Reads text that is not UTF-8, which a raw INSERT can store: one such row must not hide all others.

    The driver refuses it, and reading everything leniently costs a call per value. So a connection is switched over
    when it meets such text. A transaction that may have written fails once and is repeated by its caller."""

    def rows(self, statement: Statement, parameters: Parameters | None = None) -> list[Row]:
        try:
            return super().rows(statement, parameters)
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            self.cursor.connection.text_factory = _READ_ANY_TEXT
            if self.cursor.connection.in_transaction:
                raise
            return super().rows(statement, parameters)


class SqliteDatabase(Database):
    dialect = SQLITE
    integrity_errors = (sqlite3.IntegrityError,)
    content_errors = (sqlite3.IntegrityError, sqlite3.DataError)

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
        self._file = "" if path is None else os.fspath(path)
        if path is not None:
            before_fork(self._before_fork)
            after_fork(self._after_fork)

    def now(self) -> datetime:
        return self._clock()

    @contextmanager
    def transaction(self, _settings: Statement | None = None) -> Iterator[CursorTransaction]:
        with self._connection() as driver, closing(driver.cursor()) as cursor:
            _begin(cursor, self._patience)
            try:
                if not driver.writes_current(self._file):
                    raise self._replaced(driver)
                # The time is read after the lock is held: a transaction that waited does not act in the past.
                yield _SqliteTransaction(cursor, SQLITE, self._clock())
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
        with self._connection() as driver:
            if driver.reads_current(self._file):
                with closing(driver.cursor()) as cursor:
                    yield _SqliteTransaction(cursor, SQLITE, self._clock())
                return
            error = self._replaced(driver)
            if not error.is_reopened:
                raise error
        with self._connection() as driver, closing(driver.cursor()) as cursor:
            yield _SqliteTransaction(cursor, SQLITE, self._clock())

    def _before_fork(self) -> None:
        pool = self.engine.pool
        if isinstance(pool, _PostponesForks):
            pool.dispose()  # and keep it: a thread that waits in it would leave its connection in the previous pool
        else:
            self.engine.dispose()

    def _after_fork(self) -> None:
        leak(self.engine.pool)  # with its locks and, after a fork in C, its connections
        self.engine.dispose(close=False)
        # By a call of the parent or by an engine of the caller's, if `_before_fork` ran.
        if is_open_here(identify(self._file)):
            event.listen(self.engine, "do_connect", self._refuse)

    def _refuse(self, *_connecting: object) -> None:
        raise StoreUnavailable(
            f"this process was forked while its parent had the SQLite file {self._file} open, and SQLite cannot open it"
            " here; fork when no call is under way and your own connections to it are closed, start the process with"
            " 'spawn', or set lazy-apps for uWSGI"
        )

    def _replaced(self, driver: FileConnection) -> FileReplaced:
        """Decide what happens next, while the connection is open and its inodes cannot be given to other files."""
        assert driver.files is not None
        found = OpenFiles.at(self._file)
        error = describe_replaced(self._file, driver.files, found)
        if error.is_reopened:
            self.engine.dispose()
        return error

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """The driver's own. A file that cannot be opened, read or written is said in our own words, whoever asks.

        Whoever takes a cursor of it closes that, also when something fails: a statement that is not through keeps its
        lock, and holds up the next commit, for as long as somebody has the error."""
        notice_fork()
        try:
            with closing(self.engine.pool.connect()) as taken:  # 6 microseconds less than the engine's `connect`
                yield taken.driver_connection
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
    if parsed.database and not in_memory:
        # The program may change its working directory; later connections still open this file.
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    options: dict[str, Any] = (
        {"poolclass": _MemoryPool}
        if in_memory
        else {"poolclass": _FilePool, "pool_size": pool_size, "max_overflow": pool_size}
    )
    engine = create_engine(
        parsed,
        connect_args={
            "timeout": min(BUSY_TIMEOUT_SECONDS, patience),
            "isolation_level": None,
            "check_same_thread": False,
            "factory": FileConnection,
        },
        **options,
    )

    def prepare(connection: Any, _record: Any) -> None:
        _prepare(connection, patience)

    if in_memory:
        event.listen(engine, "connect", prepare)
    else:
        _identify_files(engine, parsed.database or "", prepare)
    # The driver is in autocommit and SQLAlchemy issues no BEGIN: our transactions say IMMEDIATE themselves.
    return SqliteDatabase(engine, None if in_memory else Path(parsed.database or ""), clock, patience)


def _identify_files(engine: Engine, path: str, prepare: Callable[[Any, Any], None]) -> None:
    """Note for every new connection which files it has open, and open nothing that it should not.

    The first read opens the write-ahead log beside the file, and the last close applies it: so the file is compared
    again before that."""
    opened: list[OpenFiles] = []  # by the latest connection; another one of the pool keeps its inodes

    def before(_dialect: Any, record: Any, _args: Any, _options: Any) -> None:
        found = record.info["files"] = OpenFiles.at(path)
        if opened and found.database != opened[-1].database and not may_open(found, opened[-1]):
            raise describe_replaced(path, opened[-1], found)

    def check(connection: FileConnection, record: Any) -> None:
        if record.info["files"].database not in (None, identify(path)):
            connection.close()
            raise StoreUnavailable(f"the SQLite file {path} was replaced while it was being opened; try again")

    def note(connection: FileConnection, record: Any) -> None:
        connection.execute("PRAGMA schema_version").fetchone()  # in a new file the first read opens the log
        connection.files = OpenFiles.at(path)
        check(connection, record)
        opened[:] = [connection.files]

    event.listen(engine, "do_connect", before)
    for step in (check, prepare, note):
        event.listen(engine, "connect", step)


def open_sqlite_for_reading(path: Path) -> SqliteDatabase:
    """On connections that write nothing and change no setting of the file, which must be there.

    Not mode=ro: that would leave the files of the write-ahead log behind, because only a writer may remove them."""

    def connect() -> sqlite3.Connection:
        file = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            file, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, factory=FileConnection
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    url = URL.create("sqlite", database=str(path))  # for messages: the connections are made above
    return SqliteDatabase(create_engine(url, creator=connect, poolclass=_ReadingPool), None)


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
