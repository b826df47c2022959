"""Postgres: psycopg 3, one round trip for a verb of one statement, COPY for bulk.

Connections are in autocommit; a verb of several statements opens an explicit transaction. Nothing relies on the session
(no temporary table, no session lock). Where a connection leads to the server itself, statements are prepared there and
compilation is switched off for the session; where a pooler is noticed in between, neither is done, so everything works
through one in transaction mode, with no flag: see docs/decisions/0011.

With `timeout_seconds` nothing waits longer than that: not the connecting, not for a connection of the pool, and not a
verb for its answers (see `watchdog`). Then the verb answers StoreUnavailable, and whether it was done is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

import psycopg
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName, LockNotAvailable
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Engine, Pool, PoolProxiedConnection, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.stores.database import CursorTransaction, Database, Parameters
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.watchdog import Watchdog

CONNECT_TIMEOUT_SECONDS = 10
POOL_TIMEOUT_SECONDS = 30.0
COPIED_AT_ONCE = 100  # lines

# What is noted about a connection of ours when it is made: there is a pooler in between; statements are compiled (JIT).
POOLED = "holdfast_pooled"
COMPILES = "holdfast_compiles"


Kept = tuple[Pool, PoolProxiedConnection, Any]  # the last is the driver's own connection


class PostgresDatabase(Database):
    dialect = POSTGRES
    integrity_errors = (psycopg.IntegrityError,)
    lock_errors = (LockNotAvailable,)

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
        with _Lent(self) as transaction:
            cursor = transaction.cursor
            begun = cursor.connection.transaction() if settings is None else _begun_with(settings.sql(POSTGRES), cursor)
            with begun:
                yield transaction

    def take_kept(self) -> Kept | None:
        while self._kept:
            with suppress(IndexError):  # somebody else was quicker
                pool, taken, driver = kept = self._kept.pop()
                if self._still_has(pool):
                    if self._watchdog is not None:
                        self._watchdog.arm(driver)
                    return kept
                taken.invalidate()
        return None

    def give_back(self, kept: Kept) -> None:
        pool, taken, driver = kept
        if not self._still_has(pool):
            taken.invalidate()
        elif len(self._kept) >= self._keeps:
            taken.close()
        else:
            if self._watchdog is not None:
                self._watchdog.disarm(driver)
            self._kept.append(kept)
            if not self._still_has(pool):  # it was closed this very moment
                self._let_go()

    def kept(self) -> int:
        return len(self._kept)

    def dispose(self) -> None:
        """No connection from before is used again."""
        self.engine.dispose()
        self._let_go()

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


class _Lent:
    """A connection for one verb; when it turns out to be broken, so are its neighbours from before.

    Every verb pays for this: hence no engine's `connect`, which costs as much again as a statement, and no generator,
    of which three around each other took as long as the pool."""

    __slots__ = ("_borrowed", "_cursor", "_database", "_driver", "_kept", "_pool", "_taken")

    def __init__(self, database: PostgresDatabase, kept: Kept | None = None) -> None:
        self._database = database
        self._kept = kept

    def __enter__(self) -> CursorTransaction:
        self._pool, self._taken, self._driver = self._kept or self._database.take_kept() or self._take()
        try:
            self._borrowed = not self._driver.autocommit  # from a user's engine, who expects transactions of it
            if self._borrowed:
                self._driver.autocommit = True
            self._cursor = self._driver.cursor()
        except Exception as error:
            self._taken.invalidate()
            raise_if_away(error)
            raise
        kind = UncompiledTransaction if self._taken.info.get(COMPILES) else CursorTransaction
        return kind(self._cursor, POSTGRES, None)

    def _take(self) -> Kept:
        pool = self._database.engine.pool  # asked for first: it may be replaced while we wait for a connection
        try:
            taken = pool.connect()
        except Exception as error:
            raise_if_away(error)
            raise
        return pool, taken, taken.driver_connection

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
            raise StoreUnavailable("a pooler lost a prepared statement; none is prepared from now on") from error
        if isinstance(error, psycopg.Error) and self._cursor.connection.closed:
            self._taken.invalidate()
            self._database.dispose()
        raise_if_away(error)

    def _give_back(self) -> None:
        if self._taken.driver_connection is None:  # it was broken
            return
        # One that was interrupted in the middle of something is of no use to anybody.
        if self._driver.pgconn.transaction_status != TransactionStatus.IDLE:
            self._taken.invalidate()
            return
        if self._borrowed:
            self._driver.autocommit = False
        self._database.give_back((self._pool, self._taken, self._driver))


@dataclass
class Preparing:
    """After how many executions a statement is prepared on the server; None: never."""

    after: int | None = 5
    through_poolers: bool = False  # somebody who knows their pooler said so


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


@contextmanager
def _begun_with(settings: str, cursor: Any) -> Iterator[None]:
    """A transaction of which the first statement, without parameters, makes no round trip of its own."""
    cursor.execute(f"BEGIN; {settings}", prepare=False)
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
    match error:
        case psycopg.OperationalError() | psycopg.InterfaceError() | OperationalError() | InterfaceError():
            raise StoreUnavailable(f"Postgres did not answer: {_first_line(error)}") from error
        case PoolTimeout():
            raise StoreUnavailable("every connection to Postgres stayed in use for too long") from error
        case DBAPIError() if error.connection_invalidated:
            raise StoreUnavailable(f"the connection to Postgres broke: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def postgres_url(url: str | URL) -> URL:
    """The URL with psycopg as its driver: `postgres://` and `postgresql://` mean the same to us."""
    parsed = make_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed


def libpq_url(url: str | URL) -> str:
    """The URL as libpq reads it, for a connection outside the pool."""
    plain = postgres_url(url).set(drivername="postgresql").difference_update_query(["prepare_threshold"])
    return plain.render_as_string(hide_password=False)


def open_postgres(url: str | URL, *, pool_size: int = 5, timeout_seconds: float | None = None) -> PostgresDatabase:
    parsed = postgres_url(url)
    arguments = {**_network_timeouts(timeout_seconds), "prepare_threshold": None}
    preparing = _preparing(parsed)
    parsed = parsed.difference_update_query(["prepare_threshold"])
    engine = create_engine(
        parsed,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=False,
        pool_reset_on_return=None,  # there is no transaction, or the connection is not given back: see _Lent
        pool_timeout=POOL_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
        connect_args=arguments,
    )
    event.listen(engine, "connect", lambda connection, record: _get_to_know(connection, record, preparing))
    if timeout_seconds is None:
        return PostgresDatabase(engine, preparing=preparing, keeps=pool_size)
    watchdog = Watchdog(timeout_seconds)
    _watch(engine, watchdog)
    return PostgresDatabase(engine, watchdog, preparing, keeps=pool_size)


def _preparing(url: URL) -> Preparing:
    given = url.query.get("prepare_threshold")
    if given is None:
        return Preparing()
    if not str(given).isdecimal():
        raise ConfigurationError(f"prepare_threshold in the database URL must be a number, got {given!r}")
    return Preparing(int(str(given)) or None, through_poolers=True)


def _network_timeouts(timeout_seconds: float | None) -> dict[str, Any]:
    if timeout_seconds is None:
        return {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    whole = max(1, math.ceil(timeout_seconds))
    return {
        "connect_timeout": whole,
        "keepalives": 1,
        "keepalives_idle": whole,
        "keepalives_interval": max(1, whole // 3),
        "keepalives_count": 3,
        "tcp_user_timeout": math.ceil(timeout_seconds * 1000),
    }


def _watch(engine: Engine, watchdog: Watchdog) -> None:
    """From the moment it is made, and then whenever somebody has it; in the pool nobody waits for it."""

    def connect(dialect: Any, _record: Any, arguments: Any, named: Any) -> Any:
        connection = dialect.connect(*arguments, **named)
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


# The claim's recursions look expensive to the planner while the table has no statistics. It would compile the statement
# (JIT) at every execution, which takes a hundred times as long as to run it.
_WITHOUT_COMPILATION = "SET LOCAL jit = off"
# A pooler gives every client a number of its own to cancel with, which is not that of the backend it gets. On a
# connection that leads to the server itself, the setting is the session's; through a pooler nothing is set. One round
# trip in either case.
_SWITCH_COMPILATION_OFF = """
    SELECT pg_backend_pid() = %(known)s,
           CASE WHEN pg_backend_pid() = %(known)s THEN set_config('jit', 'off', false)
                ELSE current_setting('jit', true) END = 'on'"""


def _get_to_know(connection: Any, record: Any, preparing: Preparing) -> None:
    connection.autocommit = True
    known = {"known": connection.info.backend_pid}
    direct, compiles = connection.execute(_SWITCH_COMPILATION_OFF, known, prepare=False).fetchone()
    if direct or preparing.through_poolers:
        connection.prepare_threshold = preparing.after
    record.info[POOLED] = not direct
    record.info[COMPILES] = compiles
