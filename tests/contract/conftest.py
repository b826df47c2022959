"""A fresh store for every test, once on each database.

With `--through-pgbouncer` it is on Postgres only, and everything but the test's own hand and clock goes through a
pooler in transaction mode. With `--partitioned` it is on Postgres only, and the audit log is in partitions, as
docs/scale.md makes it.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.contract.ground import DIALECTS, ByHand, Clock, HostClock, ServerClock
from tests.contract.kept import connections_to, emptying, judge, let_go
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
def migrated_file(template_file: Path) -> Path:
    return template_file


@pytest.fixture(scope="session")
def migrated_database(
    request: pytest.FixtureRequest, postgres_server: PostgresEndpoint, pooler: PgbouncerEndpoint | None
) -> Iterator[str]:
    """Of this worker, for one test after the other: to empty it takes a fifth of the time of making another."""
    name = f"contract_{uuid.uuid4().hex}"
    postgres_server.create_database(name, None if pooler else request.getfixturevalue("template_database"))
    url = postgres_server.url(name)
    if pooler:
        database = open_postgres(pooler.through(url))
        upgrade(database.engine)
        database.close()
    if request.config.getoption("--partitioned"):
        partition(url, MIDNIGHT)
    yield url
    let_go(url)
    postgres_server.drop_database(name)


def make_empty(url: str, *, as_new: bool = False) -> None:
    """As if it had just been migrated, whatever the test before it did or left open."""
    with emptying(url) as connections:
        connections.make_empty(as_new=as_new)


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, pooler: PgbouncerEndpoint | None) -> str:
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "holdfast.db")
        return f"sqlite:///{tmp_path / 'holdfast.db'}"
    url: str = request.getfixturevalue("migrated_database")
    as_new = request.node.get_closest_marker("new_tables") is not None
    if pooler is None:
        connections_to(url).make_empty(as_new=as_new)
        return url
    pooler.cut(make_url(url).database or "")
    connections_to(url).make_empty(as_new=as_new)
    return pooler.through(url)


@pytest.fixture
def direct_url(request: pytest.FixtureRequest, database_url: str, pooler: PgbouncerEndpoint | None) -> str:
    """Past the pooler, if there is one."""
    return database_url if pooler is None else str(request.getfixturevalue("migrated_database"))


@pytest.fixture
def running_clock(direct_url: str) -> Iterator[Clock]:
    is_sqlite = direct_url.startswith("sqlite")
    clock: Clock = HostClock() if is_sqlite else ServerClock(direct_url, connections_to(direct_url).keeper)
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
def store(
    open_again: Callable[[], SqlStore], database_url: str, direct_url: str, pooler: PgbouncerEndpoint | None
) -> Iterator[SqlStore]:
    """Whatever a test did to it, afterwards its log must still prove that every promise was kept."""
    is_kept = pooler is None and not database_url.startswith("sqlite")
    store = SqlStore(connections_to(direct_url).database()) if is_kept else open_again()
    yield store
    verdict = judge(store.database)
    assert verdict.ok, verdict.violations


@pytest.fixture
def by_hand(direct_url: str) -> Iterator[ByHand]:
    if not direct_url.startswith("sqlite"):
        yield ByHand(direct_url, connections_to(direct_url).by_hand)
        return
    by_hand = ByHand(direct_url)
    yield by_hand
    by_hand.engine.dispose()
