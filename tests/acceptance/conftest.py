"""A store of each kind, the command line on it, and the store itself to set the scene with."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_database
from tests.acceptance.command_line import CommandLine, InProcess
from tests.chaos.conftest import postgres_template, postgres_url

__all__ = ["postgres_template", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables; on SQLite there is not even a file."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_with_tables(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(request.getfixturevalue('template_file'), tmp_path / 'jobs.db')}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(database_with_tables: str) -> Iterator[SqlStore]:
    database = open_database(database_with_tables)
    yield SqlStore(database)
    database.close()


@pytest.fixture
def holdfast(tmp_path: Path, store: SqlStore) -> CommandLine:
    """The command line on the store, named by `--database`: as a process of its own on SQLite, and on Postgres in this
    one, because what is special about a process is seen once."""
    kind = CommandLine if store.database.dialect == "sqlite" else InProcess
    return kind(tmp_path, store.database.engine.url.render_as_string(hide_password=False))


@pytest.fixture
def bare(tmp_path: Path) -> CommandLine:
    """The command line with no configuration, in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture
def here(holdfast: CommandLine) -> InProcess:
    """The command line on the store, in this process: for what was already seen to work from outside."""
    return InProcess(holdfast.folder, holdfast.database)


@pytest.fixture
def inside(tmp_path: Path) -> InProcess:
    """The command line with no configuration, in this process."""
    return InProcess(tmp_path)
