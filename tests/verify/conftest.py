"""Databases to verify, on both dialects: with tables only, and with healthy jobs in them."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from holdfast.throwaway.postgres import PostgresEndpoint
from tests.servers.waiting import DEADLINE_SECONDS
from tests.verify.ledger import create_tables, write_healthy

DIALECTS = ("sqlite", "postgresql")


def open_engine(url: str) -> Engine:
    """In the way the stores connect: nothing begins a transaction but the one who wants it."""
    if url.startswith("sqlite"):
        engine = create_engine(url, connect_args={"isolation_level": None, "timeout": DEADLINE_SECONDS})
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        return engine
    return create_engine(url, isolation_level="AUTOCOMMIT")


def write_healthy_database(url: str) -> None:
    engine = create_engine(url)
    create_tables(engine)
    with engine.begin() as connection:
        write_healthy(connection)
    engine.dispose()


@pytest.fixture(params=DIALECTS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with the tables and the guards."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_database"))
    engine = create_engine(url)
    create_tables(engine)
    engine.dispose()
    return url


@pytest.fixture
def empty(empty_url: str) -> Iterator[Engine]:
    engine = open_engine(empty_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def healthy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "jobs.db"
    write_healthy_database(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def healthy_template(postgres_server: PostgresEndpoint) -> Iterator[str]:
    name = f"healthy_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    write_healthy_database(postgres_server.url(name))
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(params=DIALECTS)
def healthy_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A copy of a database with healthy jobs, this test's alone."""
    if request.param == "sqlite":
        copy = shutil.copy(request.getfixturevalue("healthy_file"), tmp_path / "copy.db")
        yield f"sqlite:///{copy}"
        return
    server: PostgresEndpoint = request.getfixturevalue("postgres_server")
    name = f"copy_{uuid.uuid4().hex}"
    server.create_database(name, template=request.getfixturevalue("healthy_template"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def healthy(healthy_url: str) -> Iterator[Engine]:
    engine = open_engine(healthy_url)
    yield engine
    engine.dispose()
