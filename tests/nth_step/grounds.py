"""A database of each kind, the way to it on which things fail, and what anybody can see of it from outside."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any, Protocol

import psycopg
from sqlalchemy import Engine, create_engine, make_url

from holdfast.maintenance.verify import verify
from holdfast.ports import Store
from holdfast.stores.database import Database
from holdfast.stores.histories import Histories
from holdfast.stores.postgres import open_postgres
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.references import References
from holdfast.stores.schema import metadata
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import SqliteDatabase, open_sqlite
from tests.nth_step.breaking import Break, break_at, disk_fails
from tests.nth_step.cutting import CuttingProxy
from tests.nth_step.fault import Fault
from tests.servers.waiting import wait_until

USERS_TABLE = "CREATE TABLE IF NOT EXISTS the_users_own (note text PRIMARY KEY)"
HELD_LOCKS = """
    SELECT query, mode FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND locktype <> 'virtualxid'"""
_TABLES = [name for name in metadata.tables if name != "holdfast_meta"]
EMPTY = f"""
    BEGIN;
    SET LOCAL session_replication_role = replica; -- the guards would refuse it
    {"".join(f"DELETE FROM {name}; " for name in (*_TABLES, "the_users_own"))}
    DELETE FROM holdfast_meta WHERE key IN ('histories_retired', 'retired_ids_through');
    COMMIT"""
POOL_SIZE = 2

Picture = dict[str, Any]


@dataclass(frozen=True)
class Hands:
    """What somebody has who acts: a store, and an engine of their own to the same database, both on the bad way."""

    store: Store
    engine: Engine

    def engines(self) -> list[Engine]:
        return [self.engine, *([self.store.database.engine] if isinstance(self.store, SqlStore) else [])]

    def close(self) -> None:
        self.store.close()
        self.engine.dispose()


class Ground(Protocol):
    fault: Fault
    plain: SqlStore  # past everything that fails

    def fresh(self) -> None: ...

    def hands(self, *, cold: bool = False) -> AbstractContextManager[Hands]:
        """Connected already, as in a process that has been at work for a while, unless they are to be cold."""

    def wait_until_quiet(self) -> None: ...

    def assert_nothing_is_held(self) -> None: ...


class SqliteGround:
    def __init__(self, path: Path, migrated: Path, break_: Break = disk_fails) -> None:
        self.fault = Fault()
        self.bad_url = f"sqlite:///{path}"
        self.plain = SqlStore(open_sqlite(self.bad_url))
        self._path = path
        self._migrated = migrated
        self._break = break_
        self._kept = sqlite_hands(self.bad_url, self.fault, break_)

    def fresh(self) -> None:
        """Another file, and the same stores: what a statement compiles to they need not find out again."""
        for engine in (self.plain.database.engine, *self._kept.engines()):
            engine.dispose()
        for left in self._path.parent.glob(f"{self._path.name}*"):
            left.unlink()
        copy(self._migrated, self._path)
        type_in(self.plain, USERS_TABLE)

    @contextmanager
    def hands(self, *, cold: bool = False) -> Iterator[Hands]:
        yield self._kept if cold else warmed_up(self._kept)

    def wait_until_quiet(self) -> None:
        """There is nobody else."""

    def assert_nothing_is_held(self) -> None:
        other = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        other.close()

    def close(self) -> None:
        self._kept.close()
        self.plain.close()


def sqlite_hands(url: str, fault: Fault, break_: Break) -> Hands:
    database, own = open_sqlite(url, pool_size=POOL_SIZE), create_engine(url)
    for engine in (database.engine, own):
        break_at(engine, fault, break_)
    return Hands(SqlStore(database), own)


class PostgresGround:
    def __init__(self, url: str, proxy: CuttingProxy) -> None:
        self.fault = proxy.fault
        bad_url = make_url(url).set(host=proxy.address[0], port=proxy.address[1])
        self.bad_url = bad_url.render_as_string(hide_password=False)
        self._proxy = proxy
        self._kept: Hands | None = None
        self.plain = SqlStore(open_postgres(url))
        type_in(self.plain, USERS_TABLE)
        self._eye = psycopg.connect(libpq_url(url), autocommit=True)

    def fresh(self) -> None:
        self._eye.execute(EMPTY.encode())

    @contextmanager
    def hands(self, *, cold: bool = False) -> Iterator[Hands]:
        """The same again and again: what has failed once must go on working."""
        if not cold:
            self._kept = self._kept or warmed_up(postgres_hands(self.bad_url))
            yield self._kept
            return
        with closing(postgres_hands(self.bad_url)) as hands:
            yield hands

    def kill_at_strike(self, pid: int) -> None:
        """The next time, this process is killed; all others are only cut off."""

        def kill() -> None:
            self._proxy.strike = lambda: None
            os.kill(pid, signal.SIGKILL)

        self._proxy.strike = kill

    def wait_until_quiet(self) -> None:
        self._proxy.wait_until_quiet()

    def assert_nothing_is_held(self) -> None:
        wait_until(lambda: not self._eye.execute(HELD_LOCKS).fetchall(), what="nothing is locked")

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._eye.close()
        type_in(self.plain, "DROP TABLE the_users_own")
        self.plain.close()


def postgres_hands(url: str) -> Hands:
    return Hands(SqlStore(open_postgres(url, pool_size=POOL_SIZE)), create_engine(url))


def type_in(store: SqlStore, statement: str) -> list[Any]:
    """As an operator does, past the verbs."""
    with store.database.statement() as transaction:
        cursor = transaction.cursor
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


# Of every job what does not differ from one run to the next.
JOBS = """
    SELECT task, queue, state, attempt, failures, crashes, seq, lease_token IS NOT NULL, cancel_requested_at IS NOT NULL
    FROM holdfast_jobs ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9"""
EVENTS = "SELECT event, from_state, to_state, attempt, seq, worker FROM holdfast_events ORDER BY 1, 2, 3, 4, 5, 6"
SPEAKERS = "SELECT (SELECT count(*) FROM holdfast_schedule_ticks) + (SELECT count(*) FROM holdfast_artifacts)"
WITH_THEIR_CONTENT = ("holdfast_jobs", "holdfast_events", "holdfast_meta")


def picture(store: SqlStore) -> Picture:
    """All that anybody can see, but for times, ids and secrets."""
    names = [name for name in metadata.tables if name not in WITH_THEIR_CONTENT]
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in (*names, "the_users_own"))
    [counted] = type_in(store, f"SELECT {counts}")
    seen: Picture = dict(zip((*names, "the_users_own"), counted, strict=True))
    return seen | {"jobs": type_in(store, JOBS), "events": type_in(store, EVENTS)}


def assert_verified(store: SqlStore) -> None:
    engine = store.database.engine
    speaks_of_jobs = type_in(store, SPEAKERS) != [(0,)]
    verdict = verify(Histories(engine), references=References(engine) if speaks_of_jobs else None)
    assert verdict.ok, verdict.violations[:10]


def assert_pool_is_sound(database: Database) -> None:
    """Every connection that the pool keeps works, and none was lost on the way."""
    with ExitStack() as all_at_once:
        for _ in range(POOL_SIZE):
            transaction = all_at_once.enter_context(database.reading())
            transaction.cursor.execute("SELECT 1")
            assert [tuple(row) for row in transaction.cursor.fetchall()] == [(1,)]
    pool: Any = database.engine.pool
    assert pool.checkedout() == database.kept()


def warmed_up(hands: Hands) -> Hands:
    hands.engine.connect().close()
    assert isinstance(hands.store, SqlStore)
    assert_pool_is_sound(hands.store.database)
    return hands


def is_on_sqlite(store: SqlStore) -> bool:
    return isinstance(store.database, SqliteDatabase)


@contextmanager
def postgres_ground(url: str) -> Iterator[PostgresGround]:
    parsed = make_url(url)
    with CuttingProxy((parsed.host or "127.0.0.1", parsed.port or 5432), Fault()) as proxy:
        ground = PostgresGround(url, proxy)
        yield ground
        ground.close()
