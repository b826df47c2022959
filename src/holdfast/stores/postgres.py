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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
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


class PostgresDatabase(Database):
    dialect = POSTGRES
    integrity_errors = (psycopg.IntegrityError,)
    lock_errors = (LockNotAvailable,)

    def __init__(self, engine: Engine, watchdog: Watchdog | None = None, preparing: Preparing | None = None) -> None:
        self.engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._watchdog = watchdog
        self._preparing = preparing
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        super().close()
        if self._watchdog is not None:
            self._watchdog.close()

    def now(self) -> None:
        return None

    @contextmanager
    def statement(self) -> Iterator[CursorTransaction]:
        with self._connected() as (driver, kind), driver.cursor() as cursor:
            yield kind(cursor, POSTGRES, None)

    reading = statement

    @contextmanager
    def transaction(self, settings: Statement | None = None) -> Iterator[CursorTransaction]:
        with self._connected() as (driver, kind), driver.cursor() as cursor:
            begun = driver.transaction() if settings is None else _begun_with(settings.sql(POSTGRES), cursor)
            with begun:
                yield kind(cursor, POSTGRES, None)

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, type[CursorTransaction]]]:
        """A connection of the pool; when it turns out to be broken, so are its neighbours from before the fault.

        Taken from the pool itself: an engine's `connect` costs as much again as a statement."""
        pool = self.engine.pool  # asked for first: it may be replaced while we wait for a connection
        with reachable():
            taken = pool.connect()
            driver: Any = taken.driver_connection
            borrowed = not driver.autocommit  # from a user's engine, who expects transactions of it
            try:
                if borrowed:
                    driver.autocommit = True
                yield driver, UncompiledTransaction if taken.info.get(COMPILES) else CursorTransaction
            except (InvalidSqlStatementName, DuplicatePreparedStatement) as error:
                taken.invalidate()
                self._prepare_no_more()
                raise StoreUnavailable("a pooler lost a prepared statement; none is prepared from now on") from error
            except psycopg.Error:
                if driver.closed:
                    taken.invalidate()
                    self.engine.dispose()
                raise
            finally:
                self._give_back(taken, pool, borrowed)

    def _give_back(self, taken: PoolProxiedConnection, pool: Pool, borrowed: bool) -> None:
        driver: Any = taken.driver_connection
        if driver is None:  # it was broken
            return
        # The pool was disposed of meanwhile: given back there, it would stay open until somebody collects it. And one
        # that was interrupted in the middle of something is of no use to anybody.
        if self._is_closed or self.engine.pool is not pool or driver.info.transaction_status != TransactionStatus.IDLE:
            taken.invalidate()
            return
        if borrowed:
            driver.autocommit = False
        taken.close()

    def _prepare_no_more(self) -> None:
        """Sessions are shared, although nothing told us so when we connected."""
        if self._preparing is not None:
            self._preparing.after = None
        self.engine.dispose()


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


@contextmanager
def reachable() -> Iterator[None]:
    """Say "the store is away" in our own words, whichever layer noticed it."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError) as error:
        raise StoreUnavailable(f"Postgres did not answer: {_first_line(error)}") from error
    except PoolTimeout as error:
        raise StoreUnavailable("every connection to Postgres stayed in use for too long") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise StoreUnavailable(f"the connection to Postgres broke: {_first_line(error)}") from error
        raise


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
        pool_timeout=POOL_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
        connect_args=arguments,
    )
    event.listen(engine, "connect", lambda connection, record: _get_to_know(connection, record, preparing))
    if timeout_seconds is None:
        return PostgresDatabase(engine, preparing=preparing)
    watchdog = Watchdog(timeout_seconds)
    _watch(engine, watchdog)
    return PostgresDatabase(engine, watchdog, preparing)


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
