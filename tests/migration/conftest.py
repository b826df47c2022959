"""An empty database of each kind, and Holdfasts that are a migration ahead of this one or behind it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from holdfast.stores import guards, upgrade
from tests.migration.databases import open_engine

HEAD = upgrade.head()
NEXT = f"{int(HEAD) + 1:04}"
NEXT_STEP = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade() -> None:
    # On SQLite the whole table is replaced, which takes its triggers away, and an index over an expression.
    op.drop_index("holdfast_jobs_ready")
    recreate = "always" if op.get_context().dialect.name == "sqlite" else "never"
    with op.batch_alter_table("holdfast_jobs", recreate=recreate) as jobs:
        jobs.add_column(sa.Column("note", sa.Text))
    claimable = sa.text("state IN ('pending', 'retryable')")
    lane = ["queue", sa.text("priority DESC"), "task", sa.text("coalesce(source, '')"), "run_after", "id"]
    op.create_index(
        "holdfast_jobs_ready", "holdfast_jobs", lane, postgresql_where=claimable, sqlite_where=claimable
    )
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.sqlite3'}"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_engine(postgres_database: str) -> Iterator[Engine]:
    engine = open_engine(postgres_database)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    yield engine
    engine.dispose()


@pytest.fixture
def next_migrations(tmp_path: Path) -> Path:
    """The folder of a Holdfast that is one step ahead."""
    # A percent sign in a path is Alembic's to misread.
    folder = shutil.copytree(Path(upgrade.__file__).with_name("migrations"), tmp_path / "next%20migrations")
    (folder / "versions" / f"{NEXT}_note.py").write_text(NEXT_STEP)
    return folder


@pytest.fixture
def first_migrations(tmp_path: Path) -> Path:
    """The folder of the first Holdfast, which knew schema 0001 and no other."""
    folder = shutil.copytree(Path(upgrade.__file__).with_name("migrations"), tmp_path / "first")
    for step in (folder / "versions").glob("[0-9]*.py"):
        if not step.name.startswith("0001"):
            step.unlink()
    return folder


@pytest.fixture
def make_first(first_migrations: Path) -> Callable[[Engine], None]:
    """Makes the tables of the first Holdfast, under its guards: today's read columns that it did not have."""

    def make(engine: Engine) -> None:
        with pytest.MonkeyPatch.context() as first:
            first.setattr(upgrade, "_MIGRATIONS", first_migrations)
            first.setattr(guards, "statements", _first_guards)
            assert upgrade.upgrade(engine) == (None, "0001")

    return make


def _first_guards(dialect: str) -> list[str]:
    text = (Path(__file__).parent / "older_guards" / f"{dialect}.sql").read_text()
    return text.removesuffix("\n").split("\n-- next\n")
