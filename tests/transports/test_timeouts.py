"""Every wait on the store has an end: against a peer that answers nothing, a statement that sleeps, a full pool."""

import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy.exc import OperationalError

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import Statement
from holdfast.wiring.sql import open_store
from tests.chaos.proxy import ForgetfulProxy
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

JOB = NewJob(task="work")
PID = Statement("test.pid", lambda _words: "SELECT pg_backend_pid()")
SLEEP = Statement("test.sleep", lambda _words: "SELECT pg_sleep(:seconds)")
TIMEOUT = 1.0
Answer = TypeVar("Answer")


def insist(call: Callable[[], Answer]) -> Answer:
    """What must work: on a machine that is slow, a call may take longer than the timeout that the test needs."""
    answers: list[Answer] = []

    def works() -> bool:
        with suppress(StoreUnavailable, OperationalError):
            answers.append(call())
        return bool(answers)

    wait_until(works, what="the call works")
    return answers[0]


@pytest.fixture
def bounded(proxy: ForgetfulProxy) -> Iterator[SqlStore]:
    store = insist(lambda: open_store(proxy.url, timeout_seconds=TIMEOUT))
    yield store
    store.close()


def test_a_black_hole_under_a_connection_that_is_open(bounded: SqlStore, proxy: ForgetfulProxy) -> None:
    job = NewJob(task="work", id="0199a2b0-0000-7000-8000-000000000001")  # one, however often it has to be enqueued
    insist(lambda: bounded.enqueue(job))
    proxy.become_a_black_hole()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            bounded.claim("worker")
    proxy.forward_again()
    assert insist(bounded.counts) == {"pending": 1}


def test_a_black_hole_in_the_middle_of_a_transaction(bounded: SqlStore, proxy: ForgetfulProxy) -> None:
    def begin_and_go_on() -> None:
        with bounded.database.transaction() as transaction:
            transaction.rows(SLEEP, {"seconds": 0})
            proxy.become_a_black_hole()
            transaction.rows(SLEEP, {"seconds": 0})

    while not proxy.is_a_black_hole:  # a slow machine may not even come to the middle
        with pytest.raises(StoreUnavailable):
            begin_and_go_on()
    proxy.forward_again()
    assert insist(lambda: bounded.enqueue(JOB)).id


def test_a_black_hole_from_the_start(proxy: ForgetfulProxy) -> None:
    proxy.become_a_black_hole()
    with pytest.raises(StoreUnavailable):
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
            with pytest.raises(StoreUnavailable):
                open_store(f"postgresql://nobody@127.0.0.1:{port}/jobs", timeout_seconds=TIMEOUT)


def test_a_statement_that_sleeps(postgres_url: str) -> None:
    store = insist(lambda: open_store(postgres_url, timeout_seconds=TIMEOUT))
    with pytest.raises(StoreUnavailable), store.database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 300})
    assert insist(lambda: store.enqueue(JOB)).id
    store.close()


class Clock:
    """Of the watchdog: it stands still while a connection is in use."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return self.now


def test_connections_at_rest_are_left_alone(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the pool for longer than the timeout, and used for longer in all, but never at once."""
    clock = Clock()
    monkeypatch.setattr("holdfast.stores.watchdog.time", clock)
    store = insist(lambda: open_store(postgres_url, timeout_seconds=0.2))
    backend = insist(lambda: session(store))
    for _ in range(4):
        reads = clock.reads
        clock.now += 10.0
        wait_until(lambda reads=reads: clock.reads >= reads + 2, what="the watchdog has looked")  # type: ignore[misc]
        assert session(store) == backend
    store.close()


def session(store: SqlStore) -> int:
    with store.database.statement() as transaction:
        return int(transaction.rows(PID)[0][0])


def test_a_pool_that_is_used_up(postgres_url: str) -> None:
    database = open_postgres(postgres_url, pool_size=1, timeout_seconds=TIMEOUT)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(insist(database.engine.connect))
        with pytest.raises(StoreUnavailable, match="in use"), database.statement():
            pass
    database.close()


def test_without_a_timeout_there_is_no_watchdog(postgres_url: str) -> None:
    before = watchdogs()
    database = open_postgres(postgres_url)
    with database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 0})
    assert watchdogs() <= before
    database.close()


def test_the_watchdog_ends_with_its_database(postgres_url: str) -> None:
    before = watchdogs()
    database = open_postgres(postgres_url, timeout_seconds=DEADLINE_SECONDS)
    with database.statement() as transaction:
        transaction.rows(SLEEP, {"seconds": 0})
    [dog] = watchdogs() - before
    database.close()
    dog.join(DEADLINE_SECONDS)
    assert not dog.is_alive()


def watchdogs() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-watchdog"}


def test_the_wait_for_the_write_lock_of_sqlite(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db", timeout_seconds=0.3)
    writer = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"locked for 0\.3 s"):
        store.enqueue(JOB)
    writer.close()
    store.enqueue(JOB)
    store.close()
