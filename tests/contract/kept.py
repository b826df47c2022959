"""What outlives a test of the contract suite: connections to its Postgres, and the statements that judge its log.

A new backend reads the catalogue, and compiles guards and routines, at the first use of each: that took two thirds of a
test. So a test gets the connections of the one before it, when that one left them at rest; whatever else is connected
is cut. Their settings are what they were: nobody changes those for longer than a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from holdfast.maintenance.verify import Verdict, verify
from holdfast.stores.database import Database
from holdfast.stores.guards.postgres import FOUNDATION
from holdfast.stores.histories import Histories
from holdfast.stores.postgres import PostgresDatabase, open_postgres
from holdfast.stores.schema import metadata
from holdfast.stores.sqlite import SqliteDatabase

LARGE_BYTES = 250_000
# To truncate a table makes new files for it and all its indexes: that is only done to what has become large.
EMPTY = """
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[{tables}] LOOP
    EXECUTE format(
      CASE WHEN pg_relation_size(name::regclass) >= {large} THEN 'TRUNCATE %I' ELSE 'DELETE FROM %I' END, name);
  END LOOP;
END $$"""

CUT = """
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND NOT (pid = ANY (%(spared)s) AND state = 'idle')"""

# What autovacuum has told the planner of earlier tests' rows.
FORGET_STATISTICS = """
DELETE FROM pg_statistic USING pg_class WHERE pg_class.oid = starelid AND starts_with(relname, 'holdfast_')"""


class KeptConnections:
    """Of one process to its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A test may cut everybody off, so these look before they are used.
        self.keeper = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=1, pool_pre_ping=True)
        self.by_hand = create_engine(url, pool_pre_ping=True)
        self._database: PostgresDatabase | None = None
        self._ours: set[int] = set()
        for engine in (self.keeper, self.by_hand):
            self._know(engine)

    def database(self) -> PostgresDatabase:
        if self._database is None:
            self._database = open_postgres(self.url)
            self._know(self._database.engine)
        return self._database

    def make_empty(self, *, as_new: bool = False) -> None:
        """As if it had just been migrated, whatever the test before it did or left open; `as_new`: to the planner, and
        to every connection, too."""
        cut = _make_empty(self.keeper, () if as_new else self._ours, as_new=as_new)
        if as_new or self._ours.intersection(cut):
            self.close()

    def close(self) -> None:
        self.keeper.dispose()
        self.by_hand.dispose()
        if self._database is not None:
            self._database.close()
            self._database = None
        self._ours.clear()

    def _know(self, engine: Engine) -> None:
        event.listen(engine, "connect", lambda driver, _record: self._ours.add(driver.info.backend_pid))


def _make_empty(keeper: Engine, spared: Iterable[int], *, as_new: bool) -> Sequence[int]:
    """Tells whom it cut off. Who was to be spared is so only when at rest."""
    kept = ("holdfast_meta",)
    tables = ", ".join(f"'{name}'" for name in metadata.tables if name not in kept)
    with keeper.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        cut = connection.exec_driver_sql(CUT, {"spared": list(spared)}).scalars().all()
        _run(connection, "SET LOCAL session_replication_role = replica")  # the guards would refuse it
        _run(connection, EMPTY.format(tables=tables, large=0 if as_new else LARGE_BYTES))
        if as_new:
            _run(connection, FORGET_STATISTICS)
        _run(connection, "DELETE FROM holdfast_meta WHERE key IN ('histories_retired', 'retired_ids_through')")
        for function in FOUNDATION:
            _run(connection, function)
    return cut


def _run(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


_KEPT: dict[str, KeptConnections] = {}


def connections_to(url: str) -> KeptConnections:
    """Whoever made the database lets go of them before it is dropped."""
    if url not in _KEPT:
        _KEPT[url] = KeptConnections(url)
    return _KEPT[url]


@contextmanager
def emptying(url: str) -> Iterator[KeptConnections]:
    """Those that are kept, or some for the moment: whose database it is may not know of any."""
    passing = None if url in _KEPT else KeptConnections(url)
    yield passing or _KEPT[url]
    if passing is not None:
        passing.close()


def let_go(url: str) -> None:
    if url in _KEPT:
        _KEPT.pop(url).close()


class FileJudge:
    """Reads the log of one SQLite file after the other with the same statements: to compile them took as long as all
    the rest of a test."""

    def __init__(self) -> None:
        self._path = ""
        self._histories = Histories(create_engine("sqlite://", creator=self._open, poolclass=NullPool))

    def judge(self, path: str) -> Verdict:
        self._path = path
        return verify(self._histories)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60, isolation_level=None)


_FILES = FileJudge()


def judge(database: Database) -> Verdict:
    """What the log of a store's database proves."""
    if isinstance(database, SqliteDatabase) and database.path is not None:
        return _FILES.judge(str(database.path))
    return verify(Histories(database.engine))
