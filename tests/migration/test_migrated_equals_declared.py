"""What the migrations build is what `schema` declares, to the last default and predicate."""

import ast
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from holdfast.domain.errors import ConfigurationError
from holdfast.stores import guards, migrations, schema
from holdfast.stores.guards.postgres import FOUNDATION
from holdfast.stores.upgrade import head, upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from tests.migration.databases import VERSION_TABLE, contents, execute, open_engine, transaction

FOLDER = Path(migrations.__file__).parent
STEPS = sorted((FOLDER / "versions").glob("[0-9]*.py"))


@pytest.fixture
def second_engine(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Engine]:
    """Another empty database, of the same kind as the first."""
    if database_url.startswith("sqlite"):
        engine = open_engine(f"sqlite:///{tmp_path / 'second.sqlite3'}")
        yield engine
        engine.dispose()
        return
    server: PostgresEndpoint = request.getfixturevalue("postgres_server")
    name = f"test_{uuid.uuid4().hex}"
    server.create_database(name)
    engine = open_engine(server.url(name))
    yield engine
    engine.dispose()
    server.drop_database(name)


def create_as_declared(engine: Engine) -> None:
    with transaction(engine) as connection:
        if engine.dialect.name == "postgresql":
            for function in FOUNDATION:
                connection.exec_driver_sql(function)
        schema.metadata.create_all(connection)
        for statement in guards.statements(engine.dialect.name):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def test_migrated_equals_declared(engine: Engine, second_engine: Engine) -> None:
    upgrade(engine)
    create_as_declared(second_engine)
    assert contents(engine) == contents(second_engine)


def test_comparison_sees_what_matters(engine: Engine) -> None:
    """The comparison above is worth something: it reads defaults, checks, predicates and storage options."""
    upgrade(engine)
    seen = repr(contents(engine))
    for detail in ("holdfast_jobs_priority", "lease_seconds", "coalesce", "retryable", "DESC", "holdfast_events_pkey"):
        assert detail.lower() in seen.lower()
    if engine.dialect.name == "postgresql":
        assert "fillfactor=80" in seen
        assert "holdfast_uuid7()" in seen
    else:
        assert "WITHOUT ROWID" in seen
        assert "randomblob" in seen


def test_raw_insert_leaves_a_pending_job_and_its_audit_row(engine: Engine) -> None:
    upgrade(engine)
    execute(engine, "INSERT INTO holdfast_jobs (task, payload) VALUES ('t', '{}')")
    [(job_id, state, queue)] = execute(engine, "SELECT id, state, queue FROM holdfast_jobs")
    assert (state, queue) == ("pending", "default")
    assert uuid.UUID(str(job_id)).version == 7
    events = execute(engine, "SELECT job_id, seq, event, from_state, to_state FROM holdfast_events")
    assert events == [(job_id, 1, "enqueued", None, "pending")]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_steps_are_frozen(step: Path) -> None:
    """A step that imported the schema or the guards would change whenever they do; what is built ahead is named by
    revision and frozen as well."""
    imported = {
        alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(step.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    ours = {name for name in imported if name.startswith("holdfast")}
    allowed = ("holdfast.stores.types.", "holdfast.domain.errors.", "holdfast.stores.migrations.ahead")
    assert all(name.startswith(allowed) for name in ours)


def test_steps_are_one_line_of_numbers() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    line = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert line[::-1] == [step.name[:4] for step in STEPS]
    assert line[0] == head()


def downgrade(engine: Engine) -> None:
    with transaction(engine) as connection:
        config = Config(attributes={"connection": connection, "version_table": VERSION_TABLE})
        config.set_main_option("script_location", str(FOLDER))
        command.downgrade(config, "base")


def test_downgrade_is_refused_in_words(engine: Engine) -> None:
    upgrade(engine)
    before = contents(engine)
    with pytest.raises(ConfigurationError, match="never downgrades"):
        downgrade(engine)
    assert contents(engine) == before
