"""Indexes on large tables are built beside the work: nobody waits for them, and no death leaves a broken one."""

import threading
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.migrations import ahead
from holdfast.stores.upgrade import check, current, head, upgrade
from tests.migration.databases import contents, execute, transaction
from tests.migration.processes import running
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

BUILDING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND starts_with(query, 'CREATE INDEX CONCURRENTLY') AND wait_event_type = 'Lock'"
)
INVALID = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"


@pytest.fixture
def old(postgres_engine: Engine, make_first: Callable[[Engine], None]) -> Engine:
    make_first(postgres_engine)
    return postgres_engine


def building(engine: Engine) -> bool:
    return execute(engine, BUILDING) == [(1,)]


def test_work_goes_on_while_an_index_is_built(old: Engine) -> None:
    answers: list[tuple[str | None, str]] = []
    thread = threading.Thread(target=lambda: answers.append(upgrade(old)))
    with transaction(old) as writer:  # a writer from before: the build has to wait for its end
        writer.exec_driver_sql("LOCK TABLE holdfast_jobs IN ROW EXCLUSIVE MODE")
        thread.start()
        wait_until(lambda: building(old), what="the build waits")
        execute(old, "INSERT INTO holdfast_jobs (task) VALUES ('meanwhile')")
        assert current(old) == "0001"
    thread.join()
    assert answers == [("0001", head())]
    check(old)
    assert execute(old, "SELECT task FROM holdfast_jobs") == [("meanwhile",)]


def test_index_of_a_killed_upgrade_is_built_anew(old: Engine, postgres_database: str) -> None:
    with running("upgrading", postgres_database) as process, transaction(old) as writer:
        writer.exec_driver_sql("LOCK TABLE holdfast_jobs IN ROW EXCLUSIVE MODE")
        assert process.read() == "ready"
        process.go_on()
        wait_until(lambda: building(old), what="the build waits")
        [(backend,)] = execute(old, BUILDING.replace("count(*)", "pid"))
        process.kill()
        # The server notices the death of a client only when it has something to say to it.
        execute(old, f"SELECT pg_terminate_backend({backend})")
        wait_until(lambda: not building(old), what="the build is over")
    assert execute(old, INVALID) == [(1,)]
    assert upgrade(old) == ("0001", head())
    assert execute(old, INVALID) == [(0,)]
    check(old)


def test_broken_index_is_replaced_even_if_it_was_not_ahead(old: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(old, "CREATE INDEX holdfast_jobs_finished ON holdfast_jobs (queue)")
    execute(old, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'holdfast_jobs_finished'::regclass")
    monkeypatch.setattr(ahead, "build", lambda *_: None)
    upgrade(old)
    assert execute(old, INVALID) == [(0,)]
    assert "finished_at" in repr([row for row in contents(old) if "holdfast_jobs_finished" in row])


def test_patience_with_a_forgotten_transaction_ends(old: Engine) -> None:
    with transaction(old) as writer:
        writer.exec_driver_sql("LOCK TABLE holdfast_jobs IN ROW EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match=r"They are held by pid"):
            upgrade(old, lock_timeout=0.05, patience=0.5)
    assert current(old) == "0001"
    assert upgrade(old) == ("0001", head())


def test_cancel_that_arrives_before_the_statement_is_repeated(old: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()
    cancel = psycopg.Connection.cancel_safe

    def counted(connection: psycopg.Connection) -> None:
        cancel(connection)
        cancelled.set()

    monkeypatch.setattr(psycopg.Connection, "cancel_safe", counted)
    with old.connect() as connection, ahead._cancelled_after(connection, 0.0):
        assert cancelled.wait(DEADLINE_SECONDS)
        with pytest.raises(OperationalError, match="canceling statement"):
            connection.exec_driver_sql(f"SELECT pg_sleep({2 * DEADLINE_SECONDS})")
