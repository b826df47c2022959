"""A ground of each kind: every run makes it fresh by itself."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.chaos.conftest import postgres_template
from tests.nth_step.grounds import PostgresGround, SqliteGround, postgres_ground

__all__ = ["postgres_template"]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "jobs.db"
    database = open_sqlite(f"sqlite:///{path}")
    upgrade(database.engine)
    database.close()
    return path


@pytest.fixture(scope="session")
def migrated_database(postgres_server: PostgresEndpoint, postgres_template: str) -> Iterator[str]:
    name = f"nth_{uuid.uuid4().hex}"
    postgres_server.create_database(name, postgres_template)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_ground(tmp_path: Path, migrated_file: Path) -> Iterator[SqliteGround]:
    with closing(SqliteGround(tmp_path / "jobs.db", migrated_file)) as ground:
        yield ground


@pytest.fixture(name="postgres_ground")
def a_postgres_ground(migrated_database: str) -> Iterator[PostgresGround]:
    with postgres_ground(migrated_database) as ground:
        yield ground
