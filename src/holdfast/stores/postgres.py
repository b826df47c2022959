"""Postgres: psycopg 3, one round trip for a verb of one statement, COPY for bulk.

Connections are in autocommit; a verb of several statements opens an explicit transaction. No session state matters
(no temporary table, no advisory lock, and the one SET only saves time), so everything works through a transaction-mode
pooler; there, switch server-side prepared statements off with `?prepare_threshold=0` unless the pooler tracks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.database import CursorTransaction, Database
from holdfast.stores.statements.words import POSTGRES

CONNECT_TIMEOUT_SECONDS = 10


class PostgresDatabase(Database):
    dialect = POSTGRES
    integrity_errors = (psycopg.IntegrityError,)

    def __init__(self, engine: Engine) -> None:
        self.engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def now(self) -> None:
        return None

    @contextmanager
    def statement(self) -> Iterator[CursorTransaction]:
        with self._connected() as driver, driver.cursor() as cursor:
            yield CursorTransaction(cursor, POSTGRES, None)

    reading = statement

    @contextmanager
    def transaction(self) -> Iterator[CursorTransaction]:
        with self._connected() as driver, driver.transaction(), driver.cursor() as cursor:
            yield CursorTransaction(cursor, POSTGRES, None)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection of the pool; when it turns out to be broken, so are its neighbours from before the fault."""
        with reachable(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            try:
                yield driver
            except psycopg.Error:
                if driver.closed:
                    connection.invalidate()
                    self.engine.dispose()
                raise


def copy_rows(transaction: CursorTransaction, command: str, rows: Iterable[Sequence[Any]]) -> None:
    with transaction.cursor.copy(command) as copy:
        for row in rows:
            copy.write_row(row)


@contextmanager
def reachable() -> Iterator[None]:
    """Say "the store is away" in our own words, whichever layer noticed it."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError) as error:
        raise StoreUnavailable(f"Postgres did not answer: {_first_line(error)}") from error
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


def open_postgres(url: str | URL, *, pool_size: int = 5) -> PostgresDatabase:
    parsed = postgres_url(url)
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    if "prepare_threshold" in parsed.query:
        threshold = str(parsed.query["prepare_threshold"])
        arguments["prepare_threshold"] = None if threshold == "0" else int(threshold)
        parsed = parsed.difference_update_query(["prepare_threshold"])
    engine = create_engine(
        parsed, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=False, connect_args=arguments
    )
    event.listen(engine, "connect", _switch_compilation_off)
    return PostgresDatabase(engine)


def _switch_compilation_off(connection: Any, _record: Any) -> None:
    """The claim's recursions look expensive to the planner while the table has no statistics. It would compile the
    statement (JIT) at every execution, which takes a hundred times as long as to run it."""
    connection.autocommit = True
    connection.execute("SET jit = off")
    connection.autocommit = False
