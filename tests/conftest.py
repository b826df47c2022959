"""Fixtures for the whole suite: the servers of the run and empty databases in them."""

import compileall
import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings

from holdfast.stores.postgres import open_postgres
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.database_choice import mark_other_database_long
from tests.programs import complete_path
from tests.servers.pgbouncer import PgbouncerEndpoint, find_program
from tests.servers.shared import RemoteServers, SharedServers, UrlSource

# How long an example takes says something about the machine, and nothing about us.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

WORKERS = min(2 * (os.cpu_count() or 1), 8)  # tests wait for processes a good part of their time
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4_000_000_000

SERVERS = pytest.StashKey[UrlSource]()
WORKER_INPUT = "holdfast_servers"
NO_BYTE_CODE = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--through-pgbouncer",
        action="store_true",
        help="run the contract suite on Postgres through pgbouncer in transaction mode",
    )
    parser.addoption(
        "--partitioned", action="store_true", help="run the contract suite with the audit log of Postgres in partitions"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`, as in `make test`. One file runs in this process: workers take seconds to start."""
    files = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and Path(*files).is_file() else WORKERS


@pytest.hookimpl(tryfirst=True)  # before `-m` decides
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_other_database_long(items)


def pytest_configure(config: pytest.Config) -> None:
    complete_path()
    # Modules and tests are a million objects that stay: the collector would walk them again and again.
    gc.set_threshold(10_000, 10, 10)
    config.stash[NO_BYTE_CODE] = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    worker_input = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.stash[SERVERS] = RemoteServers(*worker_input[WORKER_INPUT])
        return
    _keep_byte_code(config.stash[NO_BYTE_CODE])
    _work_in_memory()
    servers = SharedServers()
    config.stash[SERVERS] = servers
    config.add_cleanup(servers.close)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Until here byte code is kept wherever one is: to rewrite the assertions of all tests takes longer than all the
    rest of collecting them, in every process. What tests import and start goes by the environment again."""
    sys.dont_write_bytecode = session.config.stash[NO_BYTE_CODE]
    gc.freeze()


def _keep_byte_code(dont_write: bool) -> None:
    """The suite starts thousands of processes. Where the environment lets none of them keep byte code, each would
    compile every module of Holdfast anew, which takes as long as the rest of its start."""
    if dont_write:
        compileall.compile_dir(str(Path(__file__).parents[1] / "src"), quiet=2)


def _work_in_memory() -> None:
    """Files of tests and servers are thrown away: where memory has room, and nobody named a place, they are in it. An
    SQLite store waits for its disk at every commit, five sixths of the time of an enqueue."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK) or not _can_hold_programs(MEMORY):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)  # of this process, and of all that it starts


def _can_hold_programs(directory: Path) -> bool:
    """A container's memory often may not: some tests run what they have just written."""
    return not os.statvfs(directory).f_flag & os.ST_NOEXEC


class WorkerNode(Protocol):
    """What the controller sees of an xdist worker."""

    config: pytest.Config
    workerinput: dict[str, object]


@pytest.hookimpl(optionalhook=True)  # the hook is there only with xdist
def pytest_configure_node(node: WorkerNode) -> None:
    servers = node.config.stash[SERVERS]
    if isinstance(servers, SharedServers):
        node.workerinput[WORKER_INPUT] = servers.serve()


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresEndpoint:
    """The run's Postgres, shared by all workers: make databases in it, do not stop it."""
    return PostgresEndpoint(pytestconfig.stash[SERVERS].url("postgres"))


@pytest.fixture(scope="session")
def valkey_server(pytestconfig: pytest.Config) -> ValkeyEndpoint:
    """The run's Valkey, shared by all workers: use keys of your own, do not flush or stop it."""
    return ValkeyEndpoint(pytestconfig.stash[SERVERS].url("valkey"))


@pytest.fixture(scope="session")
def pgbouncer(pytestconfig: pytest.Config) -> PgbouncerEndpoint:
    """The run's pgbouncer, in transaction mode, in front of every database of the run's Postgres."""
    if find_program() is None:
        pytest.skip("there is no pgbouncer, and apt cannot fetch it: install pgbouncer, or put it on PATH")
    return PgbouncerEndpoint(pytestconfig.stash[SERVERS].url("pgbouncer"))


@pytest.fixture(scope="session")
def template_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with Holdfast's tables, to be copied: to make them takes a hundred times as long."""
    path = tmp_path_factory.mktemp("template") / "holdfast.db"
    database = open_sqlite(f"sqlite:///{path}")
    upgrade(database.engine)
    database.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["holdfast.db"], "all of it is in the one file"
    return path


@pytest.fixture(scope="session")
def template_database(postgres_server: PostgresEndpoint) -> Iterator[str]:
    """The name of a Postgres database with Holdfast's tables, to be copied."""
    name = f"template_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    database = open_postgres(postgres_server.url(name))
    upgrade(database.engine)
    database.close()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def postgres_database(postgres_server: PostgresEndpoint) -> Iterator[str]:
    """The SQLAlchemy URL of an empty database that is this test's alone."""
    name = f"test_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
