"""Between verbs a store keeps its connections to Postgres, and none that is of no use to anybody."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import NewJob
from holdfast.stores.pool_use import pool_use
from holdfast.stores.postgres import PostgresDatabase
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import Statement
from holdfast.wiring.sql import open_store
from tests.servers.waiting import wait_until

JOB = NewJob(task="work")
PID = Statement("test.pid", lambda _words: "SELECT pg_backend_pid()")


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    store = open_store(postgres_url)
    yield store
    store.close()


def session(store: SqlStore) -> int:
    with store.database.statement() as transaction:
        return int(transaction.rows(PID)[0][0])


def sessions(url: str) -> set[int]:
    """The server's, of this database, but for the one that asks."""
    asked = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(libpq_url(url)) as connection:
        return {pid for [pid] in connection.execute(asked + " AND backend_type = 'client backend'")}


def test_one_verb_after_the_other_has_one_session_and_it_counts_as_free(store: SqlStore) -> None:
    assert len({session(store) for _ in range(5)}) == 1
    with store.database.statement():
        in_use = pool_use(store)
    free = pool_use(store)
    assert in_use is not None
    assert free is not None
    assert in_use[1] - free[1] == 1


def test_verbs_at_the_same_time_have_sessions_of_their_own(store: SqlStore) -> None:
    with store.database.statement() as one, store.database.statement() as other:
        assert one.rows(PID) != other.rows(PID)


def test_what_is_kept_is_closed_with_the_store(postgres_url: str) -> None:
    store = open_store(postgres_url)
    with store.database.statement(), store.database.statement():
        pass
    kept = session(store)
    assert kept in sessions(postgres_url)
    store.close()
    wait_until(lambda: kept not in sessions(postgres_url), what="the server has learned of it")


def test_what_is_in_use_when_the_store_is_closed_is_closed_when_it_is_given_back(postgres_url: str) -> None:
    store = open_store(postgres_url)
    with store.database.statement() as transaction:
        [[used]] = transaction.rows(PID)
        store.close()
    assert isinstance(store.database, PostgresDatabase)
    assert store.database.kept() == 0
    wait_until(lambda: used not in sessions(postgres_url), what="the server has learned of it")


def test_after_a_broken_connection_none_from_before_is_used(postgres_url: str) -> None:
    store = open_store(postgres_url)
    try:
        with store.database.statement(), store.database.statement(), store.database.statement():
            pass
        before = sessions(postgres_url)
        with psycopg.connect(libpq_url(postgres_url), autocommit=True) as operator:
            for pid in before:
                operator.execute("SELECT pg_terminate_backend(%s, 120000)", [pid])
        assert session(store) not in before
        store.enqueue(JOB)
    finally:
        store.close()


def test_one_that_was_left_in_the_middle_of_something_is_not_kept(store: SqlStore) -> None:
    def begin_and_leave() -> None:
        with store.database.statement() as transaction:
            transaction.cursor.execute("BEGIN")
            raise ZeroDivisionError

    before = session(store)
    with pytest.raises(ZeroDivisionError):
        begin_and_leave()
    assert session(store) != before


def test_a_refused_statement_costs_no_connection(store: SqlStore) -> None:
    before = session(store)
    with pytest.raises(psycopg.Error), store.database.statement() as transaction:
        transaction.cursor.execute("SELECT nonsense")
    with pytest.raises(InvalidInput):
        store.claim("", 1)
    assert session(store) == before
