"""Many want the same key at once: whenever anybody commits there is one job, and everybody is told the truth."""

import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from holdfast.domain.answers import Operated
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import enqueueing
from tests.chaos.crew import Crew
from tests.chaos.databases import assert_verified, connect, deadlocks, is_sqlite, opened, query
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

THREADS = 50
ROUNDS = 4
KEYS = 60
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@contextmanager
def users_engine(url: str) -> Iterator[Engine]:
    """The engine of a program that enqueues in transactions of its own."""
    engine = create_engine(url, pool_size=THREADS, connect_args={"timeout": DEADLINE_SECONDS} if is_sqlite(url) else {})
    if is_sqlite(url):
        event.listen(engine, "connect", leave_transactions_to_us)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    yield engine
    engine.dispose()


def leave_transactions_to_us(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def unique(key: str) -> NewJob:
    return NewJob(task="once", unique_key=key)


def jobs_with_key(url: str, key: str) -> list[str]:
    return [row[0] for row in query(url, f"SELECT CAST(id AS text) FROM holdfast_jobs WHERE unique_key = '{key}'")]


@pytest.mark.parametrize("committing", [THREADS // 2, 1, 0], ids=["half of them", "one of them", "none of them"])
def test_fifty_transactions_enqueue_one_key_and_commit(committing: int, store: SqlStore, store_url: str) -> None:
    start = Barrier(THREADS)
    order = list(range(THREADS))

    def enqueue_in_own_transaction(place: int, key: str) -> tuple[bool, Enqueued]:
        commits = order[place] < committing
        with engine.connect() as connection:
            start.wait()
            with connection.begin() as transaction:
                answer = store.enqueue(unique(key), connection=connection)
                if not commits:
                    transaction.rollback()
        return commits, answer

    with users_engine(store_url) as engine, ThreadPoolExecutor(THREADS) as threads:
        for number in range(ROUNDS):
            key = f"key-{number}"
            random.Random(number).shuffle(order)
            told = list(threads.map(enqueue_in_own_transaction, range(THREADS), [key] * THREADS))
            stored = jobs_with_key(store_url, key)
            assert len(stored) == min(committing, 1)
            # Of those who committed one made the job; whoever was shown somebody else's was shown a job that exists.
            assert [answer.created for commits, answer in told if commits].count(True) == len(stored)
            assert {answer.id for commits, answer in told if commits or not answer.created} <= set(stored)
    assert_verified(store_url)


def test_fifty_transactions_enqueue_the_same_keys_in_bulk_and_half_roll_back(store: SqlStore, store_url: str) -> None:
    """Each in an order of its own: whoever waits for a key holds none that the other waits for."""
    committing = THREADS // 2
    start = Barrier(THREADS)
    keys = [f"key-{number}" for number in range(8)]

    def enqueue_in_own_transaction(place: int) -> tuple[bool, list[Enqueued]]:
        wanted = [*random.Random(place).sample(keys, len(keys)), keys[0]]  # and one of them twice
        with engine.connect() as connection:
            start.wait()
            with connection.begin() as transaction:
                found = store.enqueue_many([unique(key) for key in wanted], connection=connection)
                if place >= committing:
                    transaction.rollback()
        told = dict(zip(reversed(wanted), reversed(found), strict=True))  # of the twice wanted the first answer
        return place < committing, [told[key] for key in keys]

    with users_engine(store_url) as engine, ThreadPoolExecutor(THREADS) as threads:
        told = list(threads.map(enqueue_in_own_transaction, range(THREADS)))
    for number, key in enumerate(keys):
        [stored] = jobs_with_key(store_url, key)
        answers = [(commits, found[number]) for commits, found in told]
        assert [answer.created for commits, answer in answers if commits].count(True) == 1
        assert {answer.id for commits, answer in answers if commits or not answer.created} == {stored}
    assert deadlocks(store_url) == 0
    assert_verified(store_url)


def test_fifty_threads_enqueue_one_key(store: SqlStore, store_url: str) -> None:
    start = Barrier(THREADS)

    def enqueue(key: str) -> Enqueued:
        start.wait()
        return store.enqueue(unique(key))

    with ThreadPoolExecutor(THREADS) as threads:
        for number in range(ROUNDS):
            key = f"key-{number}"
            answers = list(threads.map(enqueue, [key] * THREADS))
            assert [answer.created for answer in answers].count(True) == 1
            assert {answer.id for answer in answers} == set(jobs_with_key(store_url, key))
    assert_verified(store_url)


def enqueue_in_bulk(number: int, url: str, chunk: int, rounds: int) -> list[Enqueued]:
    """All keys at once, in an order of one's own; then some of the jobs end, and their keys are free again."""
    chance = random.Random(number)
    told: list[Enqueued] = []
    with opened(url) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(enqueueing, "CHUNK", chunk)
        for _ in range(rounds):
            keys = [f"key-{n:03}" for n in range(KEYS)]
            chance.shuffle(keys)
            told += store.enqueue_many([unique(key) for key in keys])
            ended = store.claim(f"worker-{number}", chance.randint(1, KEYS // 4))
            store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in ended])
    return told


@pytest.mark.parametrize("chunk", [enqueueing.CHUNK, 20], ids=["one statement", "several statements"])
def test_batches_of_the_same_keys_in_many_orders(chunk: int, store_url: str, crew: Crew) -> None:
    told = [answer for answers in crew.run(enqueue_in_bulk, store_url, chunk, 5) for answer in answers]
    assert deadlocks(store_url) == 0
    stored = {row[0] for row in query(store_url, "SELECT CAST(id AS text) FROM holdfast_jobs")}
    assert sorted(answer.id for answer in told if answer.created) == sorted(stored)
    assert {answer.id for answer in told} == stored
    assert_verified(store_url)


def requeue_and_enqueue(number: int, url: str, dead: list[str]) -> int:
    """Half of the crew brings dead jobs back, the other half enqueues their keys."""
    chance = random.Random(number)
    with opened(url) as store:
        for _ in range(5):
            if number % 2:
                store.enqueue_many([unique(f"key-{n:03}") for n in chance.sample(range(KEYS), KEYS)])
            else:
                store.requeue(chance.sample(dead, len(dead) // 2))
            store.cancel([job.id for job in store.jobs(states=[State.PENDING], limit=KEYS).items])
    return number


def test_bulk_requeues_and_bulk_enqueues_of_the_same_keys(store: SqlStore, store_url: str, crew: Crew) -> None:
    dead: list[str] = []
    for _ in range(3):  # three dead jobs to each key, in other orders of id
        keys = random.Random(len(dead)).sample(range(KEYS), KEYS)
        made = [store.enqueue(unique(f"key-{n:03}")).id for n in keys]
        store.cancel(made)
        dead += made
    crew.run(requeue_and_enqueue, store_url, dead)
    assert deadlocks(store_url) == 0
    assert_verified(store_url)


def test_requeue_that_waits_for_a_key_loses_only_that_one(postgres_store: SqlStore, postgres_url: str) -> None:
    """Somebody's open transaction takes the key of one of the jobs to be requeued, and then commits."""
    store = postgres_store
    made = store.enqueue_many([unique("taken"), unique("free"), NewJob(task="once")])
    ids = [answer.id for answer in made]
    store.cancel(ids)
    with connect(postgres_url) as somebody, ThreadPoolExecutor(1) as thread:
        store.enqueue(unique("taken"), connection=somebody)
        operator = thread.submit(store.requeue, ids)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        wait_until(lambda: query(postgres_url, waiting) == [(1,)], what="the requeue waits for the key")
        somebody.commit()
        answers = operator.result(DEADLINE_SECONDS)
    assert [answer.did for answer in answers] == [Operated.KEY_TAKEN, Operated.REQUEUED, Operated.REQUEUED]
    assert_verified(postgres_url)


def test_dead_jobs_of_one_key_are_requeued_one_at_a_time(store: SqlStore, store_url: str, crew: Crew) -> None:
    """Failed jobs, this time: the key is free, and eight operators want it for a hundred jobs."""
    dead: list[str] = []
    for _ in range(100):
        job_id = store.enqueue(unique("only")).id
        lease = store.claim_job("worker", job_id)
        assert lease is not None
        broken = Failed(JobError("broken", "do not", retryable=False))
        store.settle([Report(job_id, lease.attempt, lease.lease_token, broken)])
        dead.append(job_id)
    requeued = [job_id for ids in crew.run(requeue_all, store_url, dead) for job_id in ids]
    assert len(requeued) == 1
    assert store.counts() == {"failed": 99, "pending": 1}
    assert deadlocks(store_url) == 0
    assert_verified(store_url)


def requeue_all(number: int, url: str, dead: list[str]) -> list[str]:
    with opened(url) as store:
        answers = store.requeue(random.Random(number).sample(dead, len(dead)))
    # Busy: another operator has the row, and waits for whoever has the key.
    told = {Operated.REQUEUED, Operated.KEY_TAKEN, Operated.WRONG_STATE, Operated.BUSY}
    assert {answer.did for answer in answers} <= told
    return [answer.job_id for answer in answers if answer.did is Operated.REQUEUED]
