"""Every wait on the store has an end: against a peer that answers nothing, a statement that sleeps, a full pool."""

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import Statement
from holdfast.wiring.sql import open_store
from tests.chaos.proxy import ForgetfulProxy

JOB = NewJob(task="work")
SLEEP = Statement("test.sleep", lambda _words: "SELECT pg_sleep(:seconds)")
TIMEOUT = 1.0
BOUND = 3.0  # connecting is bounded in whole seconds, and never below two


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.fixture
def bounded(proxy: ForgetfulProxy) -> Iterator[SqlStore]:
    store = open_store(proxy.url, timeout_seconds=TIMEOUT)
    yield store
    store.close()


def test_a_black_hole_under_a_connection_that_is_open(bounded: SqlStore, proxy: ForgetfulProxy) -> None:
    bounded.enqueue(JOB)
    proxy.become_a_black_hole()
    for _ in range(3):
        with within(BOUND), pytest.raises(StoreUnavailable):
            bounded.claim("worker")
    proxy.forward_again()
    assert len(bounded.claim("worker")) == 1


def test_a_black_hole_in_the_middle_of_a_transaction(bounded: SqlStore, proxy: ForgetfulProxy) -> None:
    def begin_and_go_on() -> None:
        with bounded.database.transaction() as transaction:
            transaction.rows(SLEEP, {"seconds": 0})
            proxy.become_a_black_hole()
            transaction.rows(SLEEP, {"seconds": 0})

    with within(BOUND), pytest.raises(StoreUnavailable):
        begin_and_go_on()
    proxy.forward_again()
    bounded.enqueue(JOB)


def test_a_black_hole_from_the_start(proxy: ForgetfulProxy) -> None:
    proxy.become_a_black_hole()
    with within(BOUND), pytest.raises(StoreUnavailable):
        open_store(proxy.url, timeout_seconds=TIMEOUT)


def test_a_host_that_does_not_even_accept() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with ExitStack() as stack:
            for _ in range(3):  # fill its backlog
                caller = stack.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(("127.0.0.1", port))
            with within(BOUND), pytest.raises(StoreUnavailable):
                open_store(f"postgresql://nobody@127.0.0.1:{port}/jobs", timeout_seconds=TIMEOUT)


def test_a_statement_that_sleeps(postgres_url: str) -> None:
    store = open_store(postgres_url, timeout_seconds=TIMEOUT)
    with within(BOUND), pytest.raises(StoreUnavailable), store.database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 30})
    with store.database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 0.1})
    store.enqueue(JOB)
    store.close()


def test_connections_at_rest_are_left_alone(postgres_url: str) -> None:
    """In the pool for longer than the timeout, and used for longer in all, but never at once."""
    store = open_store(postgres_url, timeout_seconds=2)
    with store.database.statement() as transaction:
        [[backend]] = transaction.rows(Statement("test.pid", lambda _words: "SELECT pg_backend_pid()"))
    for _ in range(4):
        time.sleep(0.6)
        with store.database.statement() as transaction:
            [[same]] = transaction.rows(Statement("test.pid", lambda _words: "SELECT pg_backend_pid()"))
        assert same == backend
    store.close()


def test_a_pool_that_is_used_up(postgres_url: str) -> None:
    database = open_postgres(postgres_url, pool_size=1, timeout_seconds=TIMEOUT)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(database.engine.connect())
        with within(BOUND), pytest.raises(StoreUnavailable, match="in use"), database.statement():
            pass
    database.close()


def test_without_a_timeout_there_is_no_watchdog(postgres_url: str) -> None:
    before = threading.active_count()
    database = open_postgres(postgres_url)
    with database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 0})
    assert threading.active_count() == before
    database.close()


def test_the_watchdog_ends_with_its_database(postgres_url: str) -> None:
    database = open_postgres(postgres_url, timeout_seconds=0.2)
    dogs = [thread for thread in threading.enumerate() if thread.name == "holdfast-watchdog"]
    database.close()
    for dog in dogs:
        dog.join(2)
        assert not dog.is_alive()


def test_the_wait_for_the_write_lock_of_sqlite(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db", timeout_seconds=0.3)
    writer = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with within(BOUND), pytest.raises(StoreUnavailable, match=r"locked for 0\.3 s"):
        store.enqueue(JOB)
    writer.close()
    store.enqueue(JOB)
    store.close()
