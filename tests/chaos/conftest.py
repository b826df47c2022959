"""Fresh databases with Holdfast's tables in them, and a crew of processes to set on them."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.crew import Crew
from tests.chaos.databases import MovableClock, opened


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.dismiss()


@pytest.fixture(scope="session")
def postgres_template(template_database: str) -> str:
    """The name of a database that is upgraded once and copied for every test."""
    return template_database


@pytest.fixture
def postgres_url(postgres_server: PostgresEndpoint, postgres_template: str) -> Iterator[str]:
    name = f"chaos_{uuid.uuid4().hex}"
    postgres_server.create_database(name, postgres_template)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path, template_file: Path) -> str:
    return f"sqlite:///{shutil.copy(template_file, tmp_path / 'jobs.db')}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A fresh, upgraded database: the test runs once on each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def store(store_url: str) -> Iterator[SqlStore]:
    with opened(store_url) as store:
        yield store


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[SqlStore]:
    with opened(postgres_url) as store:
        yield store


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[SqlStore]:
    with opened(sqlite_url) as store:
        yield store


@pytest.fixture
def clock(store_url: str) -> Iterator[MovableClock]:
    clock = MovableClock(store_url)
    yield clock
    clock.store.close()
