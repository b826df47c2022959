"""Sessions on Postgres have what the statements rely on, whatever the role or the database sets by default."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import create_engine

from holdfast.domain.answers import Beat, Status
from holdfast.domain.job import NewJob
from holdfast.domain.spec import Undecodable
from holdfast.stores.postgres_url import postgres_url as with_driver
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.chaos.databases import connect, query
from tests.servers.pgbouncer import PgbouncerEndpoint

Open = Callable[[], SqlStore]


def set_default(url: str, setting: str) -> None:
    """For every session that is opened from now on."""
    query(url, f'ALTER DATABASE "{url.rpartition("/")[2]}" SET {setting}')


@pytest.fixture(params=["direct", "pooled", "engine"])
def open_way(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Open]:
    """Opens a store on the server itself, through pgbouncer in transaction mode, or on an engine of the user's."""
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        if request.param == "engine":
            store = open_store(create_engine(with_driver(postgres_url)))
        elif request.param == "pooled":
            pgbouncer: PgbouncerEndpoint = request.getfixturevalue("pgbouncer")
            store = open_store(pgbouncer.through(postgres_url))
        else:
            store = open_store(postgres_url)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres, MDY"])
def test_heartbeat_is_confirmed_whatever_the_date_style(postgres_url: str, open_way: Open, style: str) -> None:
    set_default(postgres_url, f"DateStyle = '{style}'")
    store = open_way()
    for _ in range(3):
        store.enqueue(NewJob(task="work"))
    with ThreadPoolExecutor(4) as threads:  # several sessions of the pooler
        claimed = [job for jobs in threads.map(lambda _: store.claim("w", 1), range(8)) for job in jobs]
        beats = [Beat(job.job_id, job.attempt, job.lease_token, "w", None) for job in claimed]
        answers = [answer for found in threads.map(lambda beat: store.heartbeat([beat]), beats) for answer in found]
    assert [answer.status for answer in answers] == [Status.APPLIED] * 3
    assert {store.job(job.job_id).state for job in claimed} == {"running"}


def test_session_of_users_engine_keeps_its_own_date_style(postgres_url: str) -> None:
    set_default(postgres_url, "DateStyle = 'German'")
    engine = create_engine(with_driver(postgres_url), pool_size=1, max_overflow=0)
    store = open_store(engine)
    try:
        job = store.enqueue(NewJob(task="work"))
        assert store.job(job.id).created_at.tzinfo is not None
        with engine.begin() as own:
            assert own.exec_driver_sql("SHOW DateStyle").scalar_one() == "German, DMY"
            assert store.enqueue(NewJob(task="work", unique_key="k"), connection=own).created
        assert store.counts() == {"pending": 2}
    finally:
        store.close()


def test_users_engine_reads_payload_that_cannot_be_decoded(postgres_url: str) -> None:
    store = open_store(create_engine(with_driver(postgres_url)))
    try:
        query(postgres_url, f"INSERT INTO holdfast_jobs (task, payload) VALUES ('work', '{{\"n\": {'9' * 5_000}}}')")
        [claimed] = store.claim("w", 1)
        assert isinstance(claimed.payload, Undecodable)
        assert isinstance(store.job(claimed.job_id).payload, Undecodable)
    finally:
        store.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_limit_of_a_queue_holds_whatever_the_isolation_level(postgres_url: str, open_way: Open, level: str) -> None:
    set_default(postgres_url, f"default_transaction_isolation = '{level}'")
    store = open_way()
    for _ in range(40):
        store.enqueue(NewJob(task="work"))
    store.limit_queue("default", 1)
    together = threading.Barrier(8)

    def claim(_number: int) -> int:
        together.wait(60)
        return len(store.claim("w", 1))

    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert sum(threads.map(claim, range(8))) <= 1
    assert store.counts()["running"] == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_claims_beside_each_other_lose_no_job(postgres_url: str, open_way: Open, level: str) -> None:
    set_default(postgres_url, f"default_transaction_isolation = '{level}'")
    store = open_way()
    store.enqueue_many([NewJob(task="work") for _ in range(60)])

    def claim_all(_number: int) -> list[str]:
        found: list[str] = []
        while jobs := store.claim("w", 3):
            found += [job.job_id for job in jobs]
        return found

    with ThreadPoolExecutor(4) as threads:
        claimed = [job for jobs in threads.map(claim_all, range(4)) for job in jobs]
    claimed += claim_all(0)  # those that a claim passed over because another had locked them
    assert len(claimed) == len(set(claimed)) == 60


def test_time_zone_of_the_server_does_not_move_the_edges_of_the_calendar(postgres_url: str) -> None:
    set_default(postgres_url, "TimeZone = 'Asia/Kathmandu'")
    store = open_store(postgres_url)
    try:
        job = store.enqueue(NewJob(task="work"))
        query(postgres_url, f"UPDATE holdfast_jobs SET run_after = '9999-12-31T23:59:59Z' WHERE id = '{job.id}'")
        assert store.job(job.id).run_after.year == 9999
    finally:
        store.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_unique_key_holds_in_a_stricter_transaction_of_the_user(postgres_url: str, level: str) -> None:
    store = open_store(postgres_url)
    try:
        held = store.enqueue(NewJob(task="work", unique_key="before"))
        with connect(postgres_url) as own:
            own.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            existing = store.enqueue(NewJob(task="work", unique_key="before"), connection=own)
            assert (existing.id, existing.created) == (held.id, False)
            store.enqueue(NewJob(task="work", unique_key="meanwhile"))
            with pytest.raises(psycopg.errors.SerializationFailure):
                store.enqueue(NewJob(task="work", unique_key="meanwhile"), connection=own)
            own.rollback()
            store.enqueue(NewJob(task="work"), connection=own)
        assert store.counts() == {"pending": 3}
    finally:
        store.close()
