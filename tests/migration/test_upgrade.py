"""An upgrade brings every database to the head, once, and says what it did."""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from holdfast.domain.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from holdfast.stores import guards
from holdfast.stores import upgrade as upgrade_module
from holdfast.stores.upgrade import check, current, head, upgrade
from tests.migration.conftest import HEAD, NEXT
from tests.migration.databases import RECORD, contents, drop_a_trigger, execute, open_engine, outdate_guards


@contextmanager
def recorded_statements(engine: Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


def test_empty_database_goes_to_the_head(engine: Engine) -> None:
    assert current(engine) is None
    assert upgrade(engine) == (None, head())
    assert current(engine) == head()
    check(engine)


def test_second_upgrade_changes_nothing(engine: Engine) -> None:
    upgrade(engine)
    before = contents(engine)
    with recorded_statements(engine) as statements:
        assert upgrade(engine) == (head(), head())
    assert contents(engine) == before
    writes = ("CREATE", "DROP", "ALTER", "LOCK", "INSERT", "UPDATE")
    assert not [statement for statement in statements if statement.lstrip().upper().startswith(writes)]


def test_connections_go_back_as_they_came(engine: Engine) -> None:
    upgrade(engine)
    with engine.connect() as connection:
        driver_connection = connection.connection.driver_connection
        assert driver_connection is not None
        if engine.dialect.name == "postgresql":
            assert driver_connection.autocommit
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "0"
        else:
            assert not driver_connection.in_transaction
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 5000


def test_changed_guards_are_installed_again(engine: Engine) -> None:
    upgrade(engine)
    before = contents(engine)
    outdate_guards(engine)
    drop_a_trigger(engine)
    assert contents(engine) != before

    assert upgrade(engine) == (head(), head())
    assert contents(engine) == before
    [(record,)] = execute(engine, RECORD)
    assert json.loads(str(record)) == {
        "schema": HEAD,
        "compatible_from": upgrade_module.COMPATIBLE_FROM,
        "guards": guards.NUMBER,
        "fingerprint": guards.fingerprint(engine.dialect.name),
    }


def test_a_guard_that_was_taken_away_comes_back(engine: Engine) -> None:
    upgrade(engine)
    before = contents(engine)
    drop_a_trigger(engine)
    upgrade(engine)
    assert contents(engine) == before
    execute(engine, "DROP VIEW holdfast_attempts")
    upgrade(engine)
    assert contents(engine) == before


def test_a_guard_that_was_switched_off_is_on_again(postgres_engine: Engine) -> None:
    upgrade(postgres_engine)
    before = contents(postgres_engine)
    execute(postgres_engine, "ALTER TABLE holdfast_events DISABLE TRIGGER holdfast_update")
    assert contents(postgres_engine) != before
    upgrade(postgres_engine)
    assert contents(postgres_engine) == before


def test_a_trigger_that_only_an_older_holdfast_had_goes_away(engine: Engine) -> None:
    upgrade(engine)
    before = contents(engine)
    outdate_guards(engine)
    if engine.dialect.name == "postgresql":
        body = "FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    else:
        body = "BEGIN SELECT RAISE(ABORT, 'an older rule'); END"
    execute(engine, f'CREATE TRIGGER "holdfast_Older rule" BEFORE UPDATE ON holdfast_queues {body}')

    upgrade(engine)
    assert contents(engine) == before


def test_guards_survive_a_migration(engine: Engine, next_migrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(engine)
    execute(engine, "INSERT INTO holdfast_jobs (task) VALUES ('before')")
    guarded = [row for row in contents(engine) if row[0] in ("trigger", "view", "function", "index")]

    monkeypatch.setattr(upgrade_module, "_MIGRATIONS", next_migrations)
    assert upgrade(engine) == (HEAD, NEXT)
    check(engine)
    assert [row for row in contents(engine) if row[0] in ("trigger", "view", "function", "index")] == guarded
    execute(engine, "INSERT INTO holdfast_jobs (task, note) VALUES ('after', 'new')")
    assert execute(engine, "SELECT count(*) FROM holdfast_events") == [(2,)]


def test_a_newer_database_is_left_alone(engine: Engine) -> None:
    upgrade(engine)
    execute(engine, "UPDATE holdfast_schema_version SET version_num = '0999'")
    outdate_guards(engine)
    before = contents(engine)
    with pytest.raises(SchemaMismatch, match=r"schema 0999 .* newer Holdfast: upgrade the holdfast package\.$"):
        upgrade(engine)
    assert contents(engine) == before
    assert current(engine) == "0999"


def test_failure_in_the_middle_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(guards, "statements", lambda _dialect: ["CREATE NONSENSE"])
        with pytest.raises(DBAPIError, match="NONSENSE"):
            upgrade(engine)
    assert contents(engine) == []
    assert upgrade(engine) == (None, head())


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_engine_that_begins_transactions_by_itself(
    begin: str, sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    event.listen(sqlite_engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    test_failure_in_the_middle_leaves_nothing(sqlite_engine, monkeypatch)


def test_engine_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made without a thought to the way sqlite3 keeps DDL out of its transactions."""
    engine = create_engine(f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    test_failure_in_the_middle_leaves_nothing(engine, monkeypatch)
    engine.dispose()


def test_database_in_memory() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"isolation_level": None})
    with pytest.raises(SchemaMismatch, match="no Holdfast tables yet"):
        check(engine)
    assert upgrade(engine) == (None, head())
    check(engine)
    engine.dispose()


def test_upgrades_in_threads_of_one_process(tmp_path: Path) -> None:
    """Alembic itself can only do one at a time."""
    engines = [open_engine(f"sqlite:///{tmp_path / f'{number}.sqlite3'}") for number in range(4)]
    answers: list[tuple[str | None, str]] = []
    threads = [threading.Thread(target=lambda engine=engine: answers.append(upgrade(engine))) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(None, head())] * 4
    for engine in engines:
        check(engine)
        engine.dispose()


def test_role_without_rights_is_told_so(postgres_database: str, postgres_engine: Engine) -> None:
    role = f"reader_{uuid.uuid4().hex}"
    execute(postgres_engine, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    execute(postgres_engine, f"CREATE ROLE {role}")
    as_reader = make_url(postgres_database).update_query_dict({"options": f"-crole={role}"})
    engine = open_engine(as_reader.render_as_string(hide_password=False))
    with pytest.raises(ConfigurationError, match=r"permission denied .* as the role that owns them"):
        upgrade(engine)
    engine.dispose()
    execute(postgres_engine, f"DROP ROLE {role}")
    assert current(postgres_engine) is None


def test_unreachable_server_is_named_without_its_password() -> None:
    engine = open_engine("postgresql+psycopg://someone:secret@127.0.0.1:1/jobs")
    for operation in (upgrade, check, current):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/jobs") as caught:
            operation(engine)
        assert "secret" not in str(caught.value)


def test_unusable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    path.write_text("This is a letter, not a database. " * 100)
    engine = create_engine(f"sqlite:///{path}")
    for operation in (upgrade, check, current):
        with pytest.raises(StoreUnavailable, match=r"jobs\.sqlite3.* not a database"):
            operation(engine)
    engine.dispose()
