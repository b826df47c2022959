"""A fresh store for every test, once on each database.

With `--through-pgbouncer` it is on Postgres only, and everything but the test's own hand and clock goes through a
pooler in transaction mode. With `--partitioned` it is on Postgres only, and the audit log is in partitions, as
docs/scale.md makes it.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from holdfast.maintenance.verify import verify
from holdfast.stores.guards.postgres import FOUNDATION
from holdfast.stores.histories import Histories
from holdfast.stores.postgres import libpq_url, open_postgres
from holdfast.stores.schema import metadata
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.contract.ground import DIALECTS, ByHand, Clock, HostClock, ServerClock
from tests.examples.scale_page import MIDNIGHT, partition
from tests.servers.pgbouncer import PgbouncerEndpoint


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--through-pgbouncer") and not config.getoption("--partitioned"):
        return
    left_out = [item for item in items if _is_on_sqlite(item)]
    items[:] = [item for item in items if not _is_on_sqlite(item)]
    config.hook.pytest_deselected(items=left_out)


def _is_on_sqlite(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and (
        hasattr(item, "callspec") and item.callspec.params.get("database_url") == "sqlite"
    )


@pytest.fixture(scope="session")
def pooler(request: pytest.FixtureRequest) -> PgbouncerEndpoint | None:
    if not request.config.getoption("--through-pgbouncer"):
        return None
    pooler = request.getfixturevalue("pgbouncer")
    assert isinstance(pooler, PgbouncerEndpoint)
    return pooler


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "holdfast.db"
    database = open_sqlite(f"sqlite:///{path}")
    upgrade(database.engine)
    database.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["holdfast.db"], "all of it is in the one file"
    return path


@pytest.fixture(scope="session")
def migrated_database(
    postgres_server: PostgresEndpoint, pooler: PgbouncerEndpoint | None, pytestconfig: pytest.Config
) -> Iterator[str]:
    """Of this worker, for one test after the other: to empty it takes a fifth of the time of making another."""
    name = f"contract_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    url = postgres_server.url(name)
    database = open_postgres(pooler.through(url) if pooler else url)
    upgrade(database.engine)
    database.close()
    if pytestconfig.getoption("--partitioned"):
        partition(url, MIDNIGHT)
    yield url
    postgres_server.drop_database(name)


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


# What autovacuum has told the planner of earlier tests' rows.
FORGET_STATISTICS = """
DELETE FROM pg_statistic USING pg_class WHERE pg_class.oid = starelid AND starts_with(relname, 'holdfast_')"""


def make_empty(url: str, *, as_new: bool = False) -> None:
    """As if it had just been migrated, whatever the test before it did or left open; `as_new`: to the planner, too."""
    kept = ("holdfast_meta",)
    tables = ", ".join(f"'{name}'" for name in metadata.tables if name not in kept)
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        connection.execute("SET LOCAL session_replication_role = replica")  # the guards would refuse it
        connection.execute(EMPTY.format(tables=tables, large=0 if as_new else LARGE_BYTES))
        if as_new:
            connection.execute(FORGET_STATISTICS)
        connection.execute("DELETE FROM holdfast_meta WHERE key = 'histories_retired'")
        for function in FOUNDATION:
            connection.execute(function)


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, pooler: PgbouncerEndpoint | None) -> str:
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "holdfast.db")
        return f"sqlite:///{tmp_path / 'holdfast.db'}"
    url: str = request.getfixturevalue("migrated_database")
    as_new = request.node.get_closest_marker("new_tables") is not None
    if pooler is None:
        make_empty(url, as_new=as_new)
        return url
    pooler.cut(make_url(url).database or "")
    make_empty(url, as_new=as_new)
    return pooler.through(url)


@pytest.fixture
def direct_url(request: pytest.FixtureRequest, database_url: str, pooler: PgbouncerEndpoint | None) -> str:
    """Past the pooler, if there is one."""
    return database_url if pooler is None else str(request.getfixturevalue("migrated_database"))


@pytest.fixture
def running_clock(direct_url: str) -> Iterator[Clock]:
    clock: Clock = HostClock() if direct_url.startswith("sqlite") else ServerClock(direct_url)
    yield clock
    clock.close()


@pytest.fixture
def clock(running_clock: Clock) -> Clock:
    """Held: time passes when the test says so, however slow the machine."""
    running_clock.hold()
    return running_clock


@pytest.fixture
def open_again(database_url: str, running_clock: Clock) -> Iterator[Callable[[], SqlStore]]:
    """One more store on the same database, as another process would have it."""
    opened: list[SqlStore] = []

    def open_store() -> SqlStore:
        is_sqlite = database_url.startswith("sqlite")
        database = open_sqlite(database_url, clock=running_clock.now) if is_sqlite else open_postgres(database_url)
        opened.append(SqlStore(database))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: Callable[[], SqlStore]) -> Iterator[SqlStore]:
    """Whatever a test did to it, afterwards its log must still prove that every promise was kept."""
    store = open_again()
    yield store
    verdict = verify(Histories(store.database.engine))
    assert verdict.ok, verdict.violations


@pytest.fixture
def by_hand(direct_url: str) -> Iterator[ByHand]:
    by_hand = ByHand(direct_url)
    yield by_hand
    by_hand.engine.dispose()
