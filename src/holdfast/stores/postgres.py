"""Postgres: psycopg 3, one round trip for a verb of one statement, COPY for bulk.

Connections are in autocommit; a verb of several statements opens an explicit transaction. Nothing relies on the session
(no temporary table, no session lock). Where a connection leads to the server itself, statements are prepared there and
compilation is switched off for the session; where a pooler is noticed in between, neither is done, so everything works
through one in transaction mode, with no flag: see docs/decisions/0011.

With `timeout_seconds` nothing waits longer than that: not the connecting, not for a connection of the pool, and not a
verb for its answers (see `watchdog`). Then the verb answers StoreUnavailable, and whether it was done is not known.

How a session is opened, what it needs to be set to and when it is replaced is in `postgres_session`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, LockNotAvailable
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Engine, Pool, PoolProxiedConnection, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.domain.errors import RequestFailed, StoreUnavailable
from holdfast.domain.spec import decode_json
from holdfast.forks import after_fork, cut_off, leak, notice_fork, postponed
from holdfast.stores.database import CursorTransaction, Database, Parameters, SessionLost
from holdfast.stores.postgres_session import (
    COMPILES,
    MAX_AGE_SECONDS,
    STRICTER,
    Preparing,
    adapt_reading,
    is_fit,
    is_read_only_or_fatal,
    is_stricter,
    network_options,
    prepare_session,
    restore_dates,
    set_iso_dates,
    statement_preparation,
)
from holdfast.stores.postgres_url import postgres_url
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.watchdog import Watchdog

# The claim's recursions look expensive to the planner while the table has no statistics. It would compile the statement
# (JIT) at every execution, which takes a hundred times as long as to run it.
_WITHOUT_COMPILATION = "SET LOCAL jit = off"
POOL_TIMEOUT_SECONDS = 30.0
COPIED_AT_ONCE = 100  # lines

# The driver's own connection, and when it was given back (monotonic).
Kept = tuple[Pool, PoolProxiedConnection, Any, float]

_connections: WeakKeyDictionary[Engine, WeakSet[Any]] = WeakKeyDictionary()


def _connections_of(engine: Engine) -> WeakSet[Any]:
    """The driver's connections that the engine opens from now on."""
    if engine not in _connections:
        opened = _connections[engine] = WeakSet[Any]()
        event.listen(engine, "connect", lambda connection, _record: opened.add(connection))
    return _connections[engine]


class PostgresDatabase(Database):
    dialect = POSTGRES
    integrity_errors = (psycopg.IntegrityError,)
    lock_errors = (LockNotAvailable,)
    # The last one: the database's encoding lacks a character.
    content_errors = (psycopg.DataError, psycopg.IntegrityError, UnicodeEncodeError)

    def __init__(
        self,
        engine: Engine,
        watchdog: Watchdog | None = None,
        preparing: Preparing | None = None,
        *,
        keeps: int = 0,
    ) -> None:
        """`keeps`: so many connections of the pool may be kept between verbs, if the engine is nobody else's. To take
        one from the pool and to give it back costs a third of what a client spends on a single enqueue."""
        self.engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._watchdog = watchdog
        self._preparing = preparing
        self._keeps = keeps
        self._kept: list[Kept] = []  # the last one is used first
        self._is_closed = False
        self._connections = _connections_of(engine)
        after_fork(self._after_fork)

    def close(self) -> None:
        self._is_closed = True
        self._let_go()
        super().close()
        if self._watchdog is not None:
            self._watchdog.close()

    def now(self) -> None:
        return None

    def statement(self) -> AbstractContextManager[CursorTransaction]:
        return _Lent(self)

    reading = statement

    def lent_at_once(self) -> AbstractContextManager[CursorTransaction] | None:
        """The connection that was used last, if it is to be had without waiting for anything."""
        kept = self.take_kept()
        return None if kept is None else _Lent(self, kept)

    @contextmanager
    def transaction(self, settings: Statement | None = None) -> Iterator[CursorTransaction]:
        first = "" if settings is None else settings.sql(POSTGRES)
        with _Lent(self) as transaction, _begun_with(first, transaction.cursor):
            yield transaction

    def take_kept(self) -> Kept | None:
        notice_fork()
        while self._kept:
            with suppress(IndexError):  # somebody else was quicker
                pool, taken, driver, since = kept = self._kept.pop()
                if self._still_has(pool) and is_fit(driver, taken.info, since):
                    if self._watchdog is not None:
                        self._watchdog.arm(driver)
                    return kept
                taken.invalidate()
        return None

    def give_back(self, kept: Kept) -> None:
        pool, taken, driver, _since = kept
        if not self._still_has(pool):
            taken.invalidate()
        elif len(self._kept) >= self._keeps:
            taken.close()
        else:
            if self._watchdog is not None:
                self._watchdog.disarm(driver)
            self._kept.append((pool, taken, driver, time.monotonic()))
            if not self._still_has(pool):  # it was closed this very moment
                self._let_go()

    def kept(self) -> int:
        return len(self._kept)

    def has_timed_out(self, driver: Any) -> bool:
        return self._watchdog is not None and not self._watchdog.is_armed(driver)

    def dispose(self) -> None:
        """No connection from before is used again."""
        self.engine.dispose()
        self._let_go()

    def _after_fork(self) -> None:
        """Leave the sessions to the parent. A statement, a rollback or a Terminate of this process, for instance by a
        finalizer at its exit, would arrive in the parent's session."""
        cut_off(_descriptor(connection) for connection in list(self._connections))
        for _pool, taken, _driver, _since in self._kept:
            record: Any = taken._connection_record
            record.fairy_ref = None  # its finalizer would wait for a lock of the parent's pool
        leak(self._kept, self.engine.pool, list(self._connections))
        self._kept = []
        self.engine.dispose(close=False)
        for listeners in (self.engine.pool.dispatch.first_connect, self.engine.pool.dispatch.connect):
            # SQLAlchemy holds this lock while an engine's first connection is opened.
            mutex = getattr(listeners, "_exec_once_mutex", None)
            if mutex is not None:
                mutex._at_fork_reinit()

    def _let_go(self) -> None:
        while self._kept:
            with suppress(IndexError):
                self._kept.pop()[1].invalidate()

    def _still_has(self, pool: Pool) -> bool:
        """Else it was disposed of: what is given back there stays open until somebody collects it."""
        return not self._is_closed and self.engine.pool is pool

    def prepare_no_more(self) -> None:
        """Sessions are shared, although nothing told us so when we connected."""
        if self._preparing is not None:
            self._preparing.after = None
        self.dispose()


def _descriptor(connection: Any) -> int:
    try:
        return int(connection.fileno())
    except psycopg.Error:
        return -1


class _Lent:
    """A connection for one verb; when it turns out to be broken, so are its neighbours from before.

    Every verb pays for this: hence no engine's `connect`, which costs as much again as a statement, and no generator,
    of which three around each other took as long as the pool."""

    __slots__ = ("_borrowed", "_cursor", "_database", "_date_style", "_driver", "_kept", "_pool", "_taken")

    def __init__(self, database: PostgresDatabase, kept: Kept | None = None) -> None:
        self._database = database
        self._kept = kept

    def __enter__(self) -> CursorTransaction:
        self._pool, self._taken, self._driver, _since = self._kept or self._database.take_kept() or self._take()
        try:
            self._borrowed = not self._driver.autocommit  # from a user's engine, who expects transactions of it
            if self._borrowed:
                self._driver.autocommit = True
                self._date_style = set_iso_dates(self._driver)
            self._cursor = self._driver.cursor()
            if self._borrowed:
                adapt_reading(self._cursor)
        except Exception as error:
            self._taken.invalidate()
            raise_if_away(error)
            raise
        noted = self._taken.info
        if noted.get(STRICTER):
            return ReadCommittedTransaction(self._cursor, POSTGRES, None)
        kind = UncompiledTransaction if noted.get(COMPILES) else CursorTransaction
        return kind(self._cursor, POSTGRES, None)

    def _take(self) -> Kept:
        pool = self._database.engine.pool  # asked for first: it may be replaced while we wait for a connection
        try:
            taken = pool.connect()
            if not is_fit(taken.driver_connection, taken.info, 0.0):  # from the pool; its neighbours broke as well
                taken.invalidate()
                self._database.dispose()
                pool = self._database.engine.pool
                taken = pool.connect()
            if STRICTER not in taken.info:  # of a user's engine
                taken.info[STRICTER] = is_stricter(taken.driver_connection)
        except Exception as error:
            raise_if_away(error)
            raise
        return pool, taken, taken.driver_connection, 0.0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.close()
        try:
            if isinstance(error, Exception):
                self._blame(error)
        finally:
            self._give_back()

    def _blame(self, error: Exception) -> None:
        if isinstance(error, InvalidSqlStatementName | DuplicatePreparedStatement):
            self._taken.invalidate()
            self._database.prepare_no_more()
            raise SessionLost("a pooler lost a prepared statement; none is prepared from now on") from error
        if isinstance(error, psycopg.Error) and (self._driver.closed or is_read_only_or_fatal(error)):
            timed_out = self._database.has_timed_out(self._driver)
            self._taken.invalidate()
            self._database.dispose()
            if not timed_out:  # a second try could take as long again
                raise SessionLost(f"the session with Postgres ended: {_first_line(error)}") from error
        raise_if_away(error)

    def _give_back(self) -> None:
        if self._taken.driver_connection is None:  # it was broken
            return
        # One that was interrupted in the middle of something is of no use to anybody.
        if self._driver.pgconn.transaction_status != TransactionStatus.IDLE:
            self._taken.invalidate()
            return
        if self._borrowed:
            try:
                restore_dates(self._driver, self._date_style)
                self._driver.autocommit = False
            except psycopg.Error:
                self._taken.invalidate()
                return
        self._database.give_back((self._pool, self._taken, self._driver, 0.0))


class UncompiledTransaction(CursorTransaction):
    """Through a pooler, on a server that compiles: the session is everybody's, so what is set must end with the
    transaction. It costs two round trips more, for the statements whose plans look expensive."""

    def run(self, statement: Statement, parameters: Parameters | None = None) -> None:
        if not statement.replan:
            super().run(statement, parameters)
        elif self.cursor.connection.info.transaction_status != TransactionStatus.IDLE:
            self.cursor.execute(_WITHOUT_COMPILATION, prepare=False)
            super().run(statement, parameters)
        else:
            self._run_alone(statement, parameters)

    def _run_alone(self, statement: Statement, parameters: Parameters | None) -> None:
        with _begun_with(_WITHOUT_COMPILATION, self.cursor):
            super().run(statement, parameters)


class ReadCommittedTransaction(UncompiledTransaction):
    """For sessions that are not ours to set, and whose transactions are stricter by default.

    A single statement gets a transaction of its own, which costs two round trips."""

    def run(self, statement: Statement, parameters: Parameters | None = None) -> None:
        if self.cursor.connection.info.transaction_status != TransactionStatus.IDLE:
            super().run(statement, parameters)
        else:
            self._run_alone(statement, parameters)


@contextmanager
def _begun_with(settings: str, cursor: Any) -> Iterator[None]:
    """A transaction of which the first statement, without parameters, makes no round trip of its own.

    The level is part of it: the role's default may be stricter, and our statements count on seeing what was committed
    before each of them."""
    cursor.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {settings}", prepare=False)
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            cursor.connection.rollback()
        raise
    cursor.connection.commit()


def copy_lines(transaction: CursorTransaction, command: str, lines: Iterable[str]) -> None:
    """Some at a time: the server reads the first while the next are made."""
    left = iter(lines)
    with transaction.cursor.copy(command) as copy:
        while block := "".join(islice(left, COPIED_AT_ONCE)):
            copy.write(block)


def raise_if_away(error: Exception) -> None:
    """Say "the store is away" in our own words, whichever layer noticed it."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, psycopg.Error) and is_read_only_or_fatal(cause):
        raise StoreUnavailable(f"Postgres takes no writes here: {_first_line(cause)}") from error
    match error:
        case psycopg.OperationalError() | psycopg.InterfaceError() | OperationalError() | InterfaceError():
            if getattr(cause, "sqlstate", None) is not None:  # the server is there: a lock, a time limit, no space
                raise RequestFailed(f"Postgres failed the statement: {_first_line(error)}") from error
            raise StoreUnavailable(f"Postgres did not answer: {_first_line(error)}") from error
        case PoolTimeout():
            raise StoreUnavailable("every connection to Postgres stayed in use for too long") from error
        case DBAPIError() if error.connection_invalidated:
            raise StoreUnavailable(f"the connection to Postgres broke: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def open_postgres(url: str | URL, *, pool_size: int = 5, timeout_seconds: float | None = None) -> PostgresDatabase:
    parsed = postgres_url(url)
    arguments = {**network_options(parsed, timeout_seconds), "prepare_threshold": None}
    preparing = statement_preparation(parsed)
    parsed = parsed.difference_update_query(["prepare_threshold"])
    engine = create_engine(
        parsed,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=False,
        pool_recycle=MAX_AGE_SECONDS,
        pool_reset_on_return=None,  # there is no transaction, or the connection is not given back: see _Lent
        pool_timeout=POOL_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
        connect_args=arguments,
        json_deserializer=decode_json,
    )
    event.listen(engine, "connect", partial(_prepare, preparing))
    if timeout_seconds is None:
        event.listen(engine, "do_connect", _connect)
        return PostgresDatabase(engine, preparing=preparing, keeps=pool_size)
    watchdog = Watchdog(timeout_seconds)
    _watch(engine, watchdog)
    return PostgresDatabase(engine, watchdog, preparing, keeps=pool_size)


def _prepare(preparing: Preparing, connection: Any, record: Any) -> None:
    try:
        prepare_session(connection, record, preparing)
    except BaseException:
        connection.close()  # the pool has not taken it yet, and would leave it open
        raise


def _connect(dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
    """libpq and its libraries hold locks while they connect: a child that is forked meanwhile could never connect."""
    with postponed():
        return dialect.connect(*arguments, **named)


def _watch(engine: Engine, watchdog: Watchdog) -> None:
    """From the moment it is made, and then whenever somebody has it; in the pool nobody waits for it."""

    def connect(dialect: Any, record: Any, arguments: Any, named: Any) -> Any:
        watchdog.start()
        connection = _connect(dialect, record, arguments, named)
        watchdog.arm(connection)
        return connection

    def taken(connection: Any, _record: Any, _proxy: Any) -> None:
        watchdog.arm(connection)

    def given_back(connection: Any, _record: Any) -> None:
        if connection is not None:
            watchdog.disarm(connection)

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", taken)
    event.listen(engine, "checkin", given_back)
