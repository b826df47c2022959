"""Upgrades and other sessions in each other's way: they wait, they take turns, and they give up in words."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import Connection, Engine, event, make_url

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.migrations.locking import ADVISORY_KEY
from holdfast.stores.upgrade import check, current, head, upgrade
from tests.migration.databases import RECORD, contents, execute, open_engine, outdate_guards, transaction
from tests.migration.processes import running
from tests.servers.waiting import wait_until

WAITING = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE NOT granted"


def waiting_sessions(engine: Engine) -> object:
    [(count,)] = execute(engine, f"{WAITING} AND datname = current_database()")
    return count


@contextmanager
def session(url: str, name: str | None = None) -> Iterator[Connection]:
    """A transaction of somebody else, left open."""
    named = make_url(url).update_query_dict({"application_name": name} if name else {})
    engine = open_engine(named.render_as_string(hide_password=False))
    with transaction(engine) as connection:
        yield connection
    engine.dispose()


@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
def test_upgrades_of_several_processes_all_end_well(engine: Engine, database_url: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(running("upgrading", database_url)) for _ in range(3)]
        for process in processes:
            assert process.read() == "ready"
        for process in processes:
            process.go_on()
        answers = sorted(process.read() for process in processes)
    assert answers == [f"{head()} {head()}", f"{head()} {head()}", f"None {head()}"]
    check(engine)


def test_postgres_upgrades_queue_behind_each_other(postgres_engine: Engine, postgres_database: str) -> None:
    """As above, and with certainty at the same time: all of them wait before the first may go on."""
    with ExitStack() as stack:
        processes = [stack.enter_context(running("upgrading", postgres_database)) for _ in range(2)]
        with session(postgres_database, "first") as first:
            first.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_KEY})")
            for process in processes:
                assert process.read() == "ready"
                process.go_on()
            wait_until(lambda: waiting_sessions(postgres_engine) == 2, what="both upgrades wait")
        answers = sorted(process.read() for process in processes)
    assert answers == [f"{head()} {head()}", f"None {head()}"]
    check(postgres_engine)


@pytest.mark.parametrize("mode", ["ACCESS SHARE", "ACCESS EXCLUSIVE"])
def test_locked_table_is_reported_and_nothing_changes(
    mode: str, postgres_engine: Engine, postgres_database: str
) -> None:
    upgrade(postgres_engine)
    outdate_guards(postgres_engine)
    before, record = contents(postgres_engine), execute(postgres_engine, RECORD)
    with session(postgres_database, "forgotten-report") as other:
        pid = other.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        other.exec_driver_sql(f"LOCK TABLE holdfast_events IN {mode} MODE")
        with pytest.raises(StoreUnavailable) as caught:
            upgrade(postgres_engine, lock_timeout=0.05, patience=0.3)
        other.rollback()
    user = re.escape(str(make_url(postgres_database).username))
    assert re.fullmatch(
        r"The upgrade waited 0\.3 s for its locks and changed nothing\. They are held by "
        rf"pid {pid} \(user {user}, application forgotten-report, idle in transaction, "
        r"last query started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)\. Wait for that to end, or end it with "
        r"pg_terminate_backend\(pid\), then run `holdfast db upgrade` again\.",
        str(caught.value),
    )
    assert contents(postgres_engine) == before
    assert execute(postgres_engine, RECORD) == record
    assert upgrade(postgres_engine) == (head(), head())
    check(postgres_engine)


def test_stuck_upgrade_of_somebody_else_is_reported(postgres_engine: Engine, postgres_database: str) -> None:
    with session(postgres_database, "other-upgrade") as other:
        pid = other.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        other.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_KEY})")
        with pytest.raises(StoreUnavailable, match=rf"pid {pid} .*application other-upgrade"):
            upgrade(postgres_engine, lock_timeout=0.05, patience=0.1)
    assert current(postgres_engine) is None


def test_holder_that_has_gone_is_no_mystery(postgres_engine: Engine, postgres_database: str) -> None:
    """Patience of nothing: one try, at a lock that is free again when the holder is looked for."""
    upgrade(postgres_engine)
    outdate_guards(postgres_engine)
    with session(postgres_database, "brief") as other:
        other.exec_driver_sql("LOCK TABLE holdfast_jobs")

        def let_go_after_the_timeout(*_details: object) -> None:
            other.rollback()

        event.listen(postgres_engine, "handle_error", let_go_after_the_timeout)
        with pytest.raises(StoreUnavailable, match=r"Their holder is gone by now: run"):
            upgrade(postgres_engine, lock_timeout=0.05, patience=0)


def test_upgrade_tries_again_until_the_lock_is_free(postgres_engine: Engine, postgres_database: str) -> None:
    upgrade(postgres_engine)
    outdate_guards(postgres_engine)
    tries: list[str] = []

    def count_tries(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("LOCK TABLE"):
            tries.append(statement)

    event.listen(postgres_engine, "before_cursor_execute", count_tries)
    answers: list[tuple[str | None, str]] = []
    thread = threading.Thread(target=lambda: answers.append(upgrade(postgres_engine, lock_timeout=0.02)))
    with session(postgres_database, "busy") as other:
        other.exec_driver_sql("LOCK TABLE holdfast_jobs")
        thread.start()
        wait_until(lambda: len(tries) >= 2, what="the upgrade tries a second time")
    thread.join()
    assert answers == [(head(), head())]
    check(postgres_engine)


def test_current_database_is_not_stopped_by_locks(postgres_engine: Engine, postgres_database: str) -> None:
    upgrade(postgres_engine)
    with session(postgres_database, "busy") as other:
        other.exec_driver_sql("LOCK TABLE holdfast_jobs, holdfast_events")
        assert upgrade(postgres_engine, patience=0) == (head(), head())


def test_time_limit_for_statements_does_not_cut_an_upgrade_off(postgres_database: str) -> None:
    limited = make_url(postgres_database).update_query_dict({"options": "-cstatement_timeout=1h"})
    engine = open_engine(limited.render_as_string(hide_password=False))
    limits: dict[str, str] = {}

    def read_limit(connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        cursor = connection.connection.cursor()
        cursor.execute("SHOW statement_timeout")
        [limits[statement]] = cursor.fetchone() or ("none",)
        cursor.close()

    event.listen(engine, "before_cursor_execute", read_limit)
    assert upgrade(engine) == (None, head())
    engine.dispose()
    waits_or_works = [text for text in limits if text.startswith(("CREATE", "ALTER", "LOCK", "SELECT pg_advisory"))]
    assert len(waits_or_works) > 40
    assert {limits[text] for text in waits_or_works} == {"0"}


def test_locked_file_is_reported_and_nothing_changes(sqlite_engine: Engine) -> None:
    path = sqlite_engine.url.database
    with session(f"sqlite:///{path}") as other:
        other.exec_driver_sql("CREATE TABLE note (body TEXT)")
        with pytest.raises(StoreUnavailable) as caught:
            upgrade(sqlite_engine, lock_timeout=0.05, patience=0.2)
    assert str(caught.value) == (
        "The upgrade waited 0.2 s for its locks and changed nothing."
        f" Another process is writing to {path}."
        " Wait for it or stop it, then run `holdfast db upgrade` again."
    )
    assert execute(sqlite_engine, "PRAGMA busy_timeout") == [(5000,)]
    assert execute(sqlite_engine, "SELECT name FROM sqlite_master") == [("note",)]
    assert upgrade(sqlite_engine) == (None, head())
