"""The real SQLite store in memory, one for every history, with faults where a call of it begins and ends.

A transaction is one step: other strands run before it and after it, never inside, as `BEGIN IMMEDIATE` has it. Every
one may fail before it begins, be late, or commit and have its reply lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.database import CursorTransaction
from holdfast.stores.histories import Histories
from holdfast.stores.references import References
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase
from holdfast.stores.statements.words import Statement
from holdfast.wiring.sql import open_store
from tests.simulation import weather
from tests.simulation.machine import Machine
from tests.simulation.weather import LEASE_SECONDS, Weather
from tests.simulation.world import Host, World

CALL_SECONDS = 0.004
MOST_LATE_SECONDS = 1.3 * LEASE_SECONDS

_AS_SAVEPOINTS = {
    "BEGIN IMMEDIATE": ("SAVEPOINT step",),
    "COMMIT": ("RELEASE step",),
    "ROLLBACK": ("ROLLBACK TO step", "RELEASE step"),
}


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *values: Any) -> _Cursor:
        for statement in _AS_SAVEPOINTS.get(sql, (sql,)):
            super().execute(statement, *values)
        return self


class _Connection(sqlite3.Connection):
    """Transactions of its cursors are savepoints; its own `execute` takes words as they are."""

    def cursor(self, factory: Any = None) -> Any:  # noqa: ARG002
        return super().cursor(_Cursor)

    def rollback(self) -> None:
        """SQLAlchemy asks for it when it gives a connection back; there is nothing to take back then."""


class Disk:
    """The database of one history after the other, on one connection, so that statements stay prepared: to prepare them
    anew takes as long as half a history. All that a history does is inside one transaction, which is rolled back when
    the next one begins; what are transactions to the store are savepoints in it."""

    def __init__(self) -> None:
        self.driver = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, factory=_Connection)
        self.engine = create_engine("sqlite://", creator=lambda: self.driver, poolclass=StaticPool)
        self.histories, self.references = Histories(self.engine), References(self.engine)
        with closing(open_store("sqlite://")) as empty, empty.database.engine.connect() as connection:
            template: Any = connection.connection.driver_connection
            template.backup(self.driver)
        self.driver.execute("PRAGMA foreign_keys = ON")
        self.driver.execute("BEGIN")

    def wipe(self) -> None:
        self.driver.execute("ROLLBACK")
        self.driver.execute("BEGIN")

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Past every store: for those who watch."""
        return self.driver.execute(sql, values).fetchall()


@cache
def disk() -> Disk:
    """One for this process."""
    return Disk()


class Faults:
    """What befalls the calls of one host to the store."""

    def __init__(self, world: World, plan: Weather, disk: Disk, crash: Callable[[Host], None]) -> None:
        self.world = world
        self.plan = plan
        self.disk = disk
        self.crash = crash
        self.is_calm = False
        self.committed: Callable[[Host], None] = lambda _host: None
        self.troubled: set[str] = set()  # hosts that were not answered as they should have been

    def before(self, host: Host) -> None:
        world, plan, random = self.world, self.plan, self.world.random
        world.sleep(random.random() * CALL_SECONDS)
        if self.is_calm:
            return
        if random.random() < plan.slow:
            self._trouble(weather.SLOW_REQUEST, host)
            world.sleep(random.random() * MOST_LATE_SECONDS)
        if plan.is_away(world.now):
            self._trouble(weather.STORE_AWAY, host)
            raise StoreUnavailable("simulated: the store is away")
        if plan.is_cut_off(host.name, world.now):
            self._trouble(weather.CUT_OFF, host)
            raise StoreUnavailable("simulated: nobody here reaches the store")
        if random.random() < plan.crashing:
            self._trouble(weather.CRASHED_IN_CALL, host)
            self.crash(host)
        if random.random() < plan.failing:
            self._trouble(weather.FAILED_BEFORE, host)
            raise StoreUnavailable("simulated: failed before it took effect")

    def after(self, host: Host) -> None:
        self.committed(host)
        self.answering(host)

    def answering(self, host: Host) -> None:
        world, plan, random = self.world, self.plan, self.world.random
        world.sleep(random.random() * CALL_SECONDS)
        if self.is_calm:
            return
        if random.random() < plan.slow:
            self._trouble(weather.SLOW_REPLY, host)
            world.sleep(random.random() * MOST_LATE_SECONDS)
        if random.random() < plan.crashing:
            self._trouble(weather.CRASHED_IN_CALL, host)
            self.crash(host)
        if random.random() < plan.losing:
            self._trouble(weather.REPLY_LOST, host)
            raise StoreUnavailable("simulated: committed, and the reply was lost")

    def _trouble(self, kind: str, host: Host) -> None:
        self.troubled.add(host.name)
        self.world.fault(kind, host=host)


class SimulatedDatabase(SqliteDatabase):
    """As one host sees it."""

    def __init__(self, machine: Machine, faults: Faults, host: Host) -> None:
        super().__init__(faults.disk.engine, None, machine.moment)
        self._faults = faults
        self._host = host

    @contextmanager
    def transaction(self, _settings: Statement | None = None) -> Iterator[CursorTransaction]:
        world = self._faults.world
        self._faults.before(self._host)
        world.in_transaction = True
        try:
            with super().transaction(_settings) as transaction:
                yield transaction
        finally:
            world.in_transaction = False
        self._faults.after(self._host)

    statement = transaction

    @contextmanager
    def reading(self) -> Iterator[CursorTransaction]:
        world = self._faults.world
        if world.in_transaction:
            with super().reading() as transaction:
                yield transaction
            return
        self._faults.before(self._host)
        world.in_transaction = True
        try:
            with super().reading() as transaction:
                yield transaction
        finally:
            world.in_transaction = False
        self._faults.answering(self._host)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield self._faults.disk.driver

    def dawdle(self, seconds: float) -> None:
        """Whoever asks here is slow just now."""
        self._faults.world.sleep(self._faults.world.random.random() * seconds)

    def close(self) -> None:
        """The engine is everybody's."""


def open_simulated(machine: Machine, faults: Faults, host: Host) -> SqlStore:
    return SqlStore(SimulatedDatabase(machine, faults, host))
