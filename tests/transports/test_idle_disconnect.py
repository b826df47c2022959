"""A connection that was cut while it was idle costs no caller anything."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import redis
from sqlalchemy import create_engine

from holdfast.domain.job import NewJob
from holdfast.stores.postgres_url import postgres_url as with_driver
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.link import Link
from holdfast.wiring.sql import open_store
from tests.chaos.databases import query
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

ROUNDS = 3
OTHERS = """
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


@pytest.fixture(params=["ours", "engine"])
def store(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[SqlStore]:
    own_engine = request.param == "engine"
    store = open_store(create_engine(with_driver(postgres_url)) if own_engine else postgres_url)
    yield store
    store.close()


def sessions(url: str) -> set[int]:
    return {pid for (pid,) in query(url, f"SELECT pid {OTHERS}")}


def close_soon(store: SqlStore) -> int:
    """The server closes the session that the store keeps; the next one is left alone."""
    with store.database.statement() as transaction:
        [pid] = transaction.cursor.execute("SELECT pg_backend_pid()").fetchone()
        transaction.cursor.execute("SET idle_session_timeout = '100ms'")
        return int(pid)


def is_closed(url: str, pid: int) -> bool:
    return pid not in sessions(url)


def cut_all(url: str) -> None:
    """And wait until they have ended."""
    query(url, f"SELECT pg_terminate_backend(pid, 120000) {OTHERS}")


VERBS: dict[str, Callable[[SqlStore, str], object]] = {
    "enqueue": lambda store, _: store.enqueue(NewJob(task="work")).created,
    "enqueue by COPY": lambda store, _: len(store.enqueue_many([NewJob(task="work")] * 50)) == 50,
    "enqueue with a key": lambda store, _: store.enqueue(NewJob(task="work", unique_key="k")).id,
    "read": lambda store, job_id: store.job(job_id).id == job_id,
    "cancel": lambda store, job_id: store.cancel([job_id]),
    "claim": lambda store, _: store.claim("worker", 1),
}


@pytest.mark.parametrize("verb", VERBS)
def test_call_after_the_server_closed_the_session_works(store: SqlStore, postgres_url: str, verb: str) -> None:
    job = store.enqueue(NewJob(task="work"))
    store.enqueue_many([NewJob(task="work")] * 10)
    for _ in range(ROUNDS):
        cut_all(postgres_url)
        assert VERBS[verb](store, job.id)


def test_enqueues_of_a_quiet_program_survive_idle_session_timeout(store: SqlStore, postgres_url: str) -> None:
    for number in range(ROUNDS):
        assert store.enqueue(NewJob(task="work", payload={"n": number})).created
        wait_until(partial(is_closed, postgres_url, close_soon(store)), what="the server has closed the session")
    assert store.enqueue(NewJob(task="work")).created
    assert store.counts() == {"pending": ROUNDS + 1}


def test_redis_command_after_the_server_closed_the_connection_works(valkey_server: ValkeyEndpoint) -> None:
    link = Link(valkey_server.url, DEADLINE_SECONDS)
    operator = redis.Redis.from_url(valkey_server.url)
    try:
        for _ in range(ROUNDS):
            me = link.ask(link.client.client_id)
            operator.client_kill_filter(_id=str(me))
            assert link.ask(link.client.ping)
            assert link.ask(link.client.client_id) != me
    finally:
        operator.close()
        link.close()
