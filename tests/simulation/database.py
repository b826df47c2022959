"""The real SQLite store in memory, one for every history, with faults where a call of it begins and ends.

A transaction is one step: other strands run before it and after it, never inside, as `BEGIN IMMEDIATE` has it. Every
one may fail before it begins, be late, or commit and have its reply lost.

Every store has one session, as it has with Postgres. The server may close it while it is idle, or take no writes for a
while: then the session is replaced, and no new one is opened before the end of that phase.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from holdfast.domain.errors import HoldfastError, RequestFailed, StoreUnavailable
from holdfast.stores.database import CursorTransaction, SessionLost
from holdfast.stores.histories import Histories
from holdfast.stores.references import References
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase
from holdfast.stores.sqlite_files import FileConnection
from holdfast.stores.statements.words import Statement
from holdfast.wiring.sql import open_store
from tests.simulation import weather
from tests.simulation.machine import Machine
from tests.simulation.weather import LEASE_SECONDS, Weather
from tests.simulation.world import Host, World

CALL_SECONDS = 0.004
MOST_LATE_SECONDS = 1.3 * LEASE_SECONDS
IDLE_SECONDS = 0.5

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


class SavepointConnection(FileConnection):
    """Transactions of its cursors are savepoints; its own `execute` runs statements unchanged."""

    def cursor(self, factory: Any = None) -> Any:  # noqa: ARG002
        return super().cursor(_Cursor)

    def rollback(self) -> None:
        """SQLAlchemy asks for it when it gives a connection back; there is nothing to take back then."""


class Disk:
    """The database of one history after the other, on one connection, so that statements stay prepared: to prepare them
    anew takes as long as half a history. All that a history does is inside one transaction, which is rolled back when
    the next one begins; what are transactions to the store are savepoints in it."""

    def __init__(self) -> None:
        self.driver = sqlite3.connect(
            ":memory:", isolation_level=None, cached_statements=512, factory=SavepointConnection
        )
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
        self.met: defaultdict[str, list[str]] = defaultdict(list)  # by host: the faults that its calls met, in order

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
        if plan.is_unknown(world.now, world.more):
            self._trouble(weather.UNKNOWN_BEFORE, host)
            raise self._unknown(host)

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
        if plan.is_unknown(world.now, world.more):
            self._trouble(weather.UNKNOWN_AFTER, host)
            raise self._unknown(host)

    def renew(self, session: Session | None, host: Host, *, writes: bool) -> Session:
        """The session of a call that begins now."""
        world, plan = self.world, self.plan
        is_read_only = not self.is_calm and plan.is_read_only(world.now)
        if is_read_only and (session is None or writes):
            self._trouble(weather.READ_ONLY, host)
            if session is None:
                raise StoreUnavailable("simulated: no server with writes")
            raise SessionLost("simulated: the server takes no writes")
        is_idle = session is not None and not self.is_calm and world.now - session.used_at > IDLE_SECONDS
        if is_idle and world.more.random() < plan.idle:
            self._trouble(weather.IDLE_CUT, host)
            raise SessionLost("simulated: the server closed the idle session")
        return Session(world.now)

    def _unknown(self, host: Host) -> Exception:
        """As a proxy's 404 or a bug in a driver looks to a worker. A client's verbs tell it in our own words."""
        kinds = (RequestFailed, HoldfastError, RuntimeError) if host.name.startswith("w") else (RequestFailed,)
        return self.world.more.choice(kinds)("simulated: an error that says nothing about the request")

    def _trouble(self, kind: str, host: Host) -> None:
        self.met[host.name].append(kind)
        self.world.fault(kind, host=host)


@dataclass(frozen=True)
class Session:
    used_at: float


class SimulatedDatabase(SqliteDatabase):
    """As one host sees it."""

    def __init__(self, machine: Machine, faults: Faults, host: Host, session: Session | None) -> None:
        super().__init__(faults.disk.engine, None, machine.moment)
        self._faults = faults
        self._host = host
        self._session = session

    @contextmanager
    def transaction(self, _settings: Statement | None = None) -> Iterator[CursorTransaction]:
        world = self._faults.world
        self._begin_call(writes=True)
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
        self._begin_call(writes=False)
        world.in_transaction = True
        try:
            with super().reading() as transaction:
                yield transaction
        finally:
            world.in_transaction = False
        self._faults.answering(self._host)

    def _begin_call(self, *, writes: bool) -> None:
        self._faults.before(self._host)
        session, self._session = self._session, None
        self._session = self._faults.renew(session, self._host, writes=writes)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield self._faults.disk.driver

    def dawdle(self, seconds: float) -> None:
        """Whoever asks here is slow just now."""
        self._faults.world.sleep(self._faults.world.random.random() * seconds)

    def close(self) -> None:
        """The engine is everybody's."""


def open_simulated(machine: Machine, faults: Faults, host: Host, *, was_idle: bool = False) -> SqlStore:
    """`was_idle`: with a session that was used long ago."""
    session = Session(float("-inf")) if was_idle else None
    return SqlStore(SimulatedDatabase(machine, faults, host, session))
