"""Somebody's transaction sits on one job's row for as long as it likes: everybody else's jobs go on.

The sessions of the store give up on a lock after a moment, so a verb that waits for the row is an error here and not
just a delay; and every verb is over while the transaction is still open.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast.domain.answers import Beat, Operated, Status
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import assert_verified, connect, opened, query, with_options

LOCK_PATIENCE = "1s"
LOCKS = {
    "that reads for update": "SELECT * FROM holdfast_jobs WHERE id = %s FOR UPDATE",
    "that has updated it": "UPDATE holdfast_jobs SET traceparent = 'somebody' WHERE id = %s",
}


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    with opened(with_options(postgres_url, lock_timeout=LOCK_PATIENCE)) as store:
        yield store


@pytest.fixture(params=list(LOCKS))
def lock(request: pytest.FixtureRequest) -> str:
    return LOCKS[request.param]


@pytest.fixture(params=["commits", "rolls back"])
def end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def sitting_on(url: str, job_id: str, lock: str, end: str = "commits") -> Iterator[None]:
    with connect(url) as somebody:
        somebody.execute(lock.encode(), [job_id])
        yield
        assert somebody.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        somebody.commit() if end == "commits" else somebody.rollback()


def enqueue(store: SqlStore, count: int, **options: Any) -> list[str]:
    return [answer.id for answer in store.enqueue_many([NewJob(task="work", **options)] * count)]


def reports(leases: list[Claimed], outcome: Outcome) -> list[Report]:
    return [Report(lease.job_id, lease.attempt, lease.lease_token, outcome, "worker") for lease in leases]


def expire_all(url: str) -> None:
    query(url, "UPDATE holdfast_jobs SET lease_expires_at = clock_timestamp() - interval '1 hour'")


def test_one_locked_row_is_busy_and_four_hundred_heartbeats_are_in_time(
    store: SqlStore, postgres_url: str, lock: str, end: str
) -> None:
    enqueue(store, 401)
    leases = store.claim("worker", 401)
    beats = [Beat(lease.job_id, lease.attempt, lease.lease_token) for lease in leases]
    locked = leases[200].job_id
    with sitting_on(postgres_url, locked, lock, end):
        answers = store.heartbeat(beats)
        assert [answer.job_id for answer in answers if answer.status is not Status.APPLIED] == [locked]
        assert answers[200].status is Status.BUSY
    assert [answer.status for answer in store.heartbeat(beats)] == [Status.APPLIED] * 401
    assert store.refusals() == []


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(JobError("flaky", "try again"))], ids=["success", "failure"])
def test_neighbours_of_a_locked_row_are_settled_and_it_is_settled_later(
    store: SqlStore, postgres_url: str, lock: str, end: str, outcome: Outcome
) -> None:
    enqueue(store, 20)
    batch = reports(store.claim("worker", 20), outcome)
    with sitting_on(postgres_url, batch[7].job_id, lock, end):
        answers = store.settle(batch)
        assert [answer.status is Status.APPLIED for answer in answers] == [n != 7 for n in range(20)]
        assert answers[7].status is Status.BUSY
    assert [answer.status for answer in store.settle(batch)] == [
        Status.APPLIED if n == 7 else Status.REPLAYED for n in range(20)
    ]
    assert store.refusals() == []
    assert_verified(postgres_url)


def test_claims_pass_a_locked_row_by(store: SqlStore, postgres_url: str, lock: str, end: str) -> None:
    ids = enqueue(store, 10)
    with sitting_on(postgres_url, ids[0], lock, end):
        assert store.claim_job("worker", ids[0]) is None
        assert [job.job_id for job in store.claim("worker", 1)] == [ids[1]]
        assert [job.job_id for job in store.claim("worker", 100)] == ids[2:]
        assert store.claim("worker", 1) == []
    assert [job.job_id for job in store.claim("worker", 100)] == [ids[0]]
    assert_verified(postgres_url)


@pytest.mark.parametrize("limited", ["source", "queue"])
def test_locked_row_does_not_use_up_the_limit_of_its_source_or_queue(
    store: SqlStore, postgres_url: str, lock: str, limited: str
) -> None:
    if limited == "source":
        store.set_source("narrow", max_concurrent=1)
    else:
        store.limit_queue("narrow", 1)
    ids = enqueue(store, 3, **{limited: "narrow"})
    with sitting_on(postgres_url, ids[0], lock):
        [claimed] = store.claim("worker", 10)
        assert claimed.job_id == ids[1]
        assert store.claim("worker", 10) == []
    assert_verified(postgres_url)


def test_reaper_passes_a_locked_row_by_and_comes_back_for_it(
    store: SqlStore, postgres_url: str, lock: str, end: str
) -> None:
    ids = enqueue(store, 50)
    store.claim("worker", 50)
    expire_all(postgres_url)
    with sitting_on(postgres_url, ids[0], lock, end):
        reaped = store.reap("reaper", period=0)
        assert sorted(settled.job_id for settled in reaped.settled) == ids[1:]
        assert store.job(ids[0]).state is State.RUNNING
    assert [settled.job_id for settled in store.reap("reaper", period=0).settled] == [ids[0]]
    assert_verified(postgres_url)


def test_bulk_cancel_leaves_a_locked_row_for_the_next_try(
    store: SqlStore, postgres_url: str, lock: str, end: str
) -> None:
    ids = enqueue(store, 20)
    running = [job.job_id for job in store.claim("worker", 10)]
    with sitting_on(postgres_url, ids[3], lock, end), sitting_on(postgres_url, ids[13], lock, end):
        answers = {answer.job_id: answer.did for answer in store.cancel(ids)}
        assert [job_id for job_id, did in answers.items() if did is Operated.BUSY] == [ids[3], ids[13]]
    again = {answer.job_id: answer.did for answer in store.cancel(ids)}
    assert again == {i: Operated.CANCEL_REQUESTED if i in running else Operated.CANCELLED for i in ids}
    assert_verified(postgres_url)


def test_bulk_requeue_leaves_a_locked_row_for_the_next_try(
    store: SqlStore, postgres_url: str, lock: str, end: str
) -> None:
    ids = enqueue(store, 10)
    store.cancel(ids)
    with sitting_on(postgres_url, ids[3], lock, end):
        answers = [answer.did for answer in store.requeue(ids)]
        assert answers == [Operated.BUSY if n == 3 else Operated.REQUEUED for n in range(10)]
    assert [answer.did for answer in store.requeue([ids[3]])] == [Operated.REQUEUED]
    assert_verified(postgres_url)


def test_unique_enqueue_reads_past_a_locked_holder_of_its_key(store: SqlStore, postgres_url: str) -> None:
    [holder] = enqueue(store, 1, unique_key="one")
    with sitting_on(postgres_url, holder, LOCKS["that reads for update"]):
        answer = store.enqueue(NewJob(task="work", unique_key="one"))
        assert (answer.id, answer.created) == (holder, False)


def test_open_enqueue_of_a_user_holds_nobody_up(store: SqlStore, postgres_url: str) -> None:
    """A job that is not committed yet is nobody's to claim, and in nobody's way."""
    ids = enqueue(store, 10)
    with connect(postgres_url) as somebody:
        unborn = store.enqueue(NewJob(task="work", priority=100, unique_key="one"), connection=somebody)
        assert [job.job_id for job in store.claim("worker", 3)] == ids[:3]
        assert [answer.did for answer in store.cancel([*ids[3:5], unborn.id])] == [
            Operated.CANCELLED,
            Operated.CANCELLED,
            Operated.NOT_FOUND,
        ]
        assert store.enqueue(NewJob(task="work", unique_key="two")).created
        somebody.commit()
    assert [job.job_id for job in store.claim("worker", 1)] == [unborn.id]
    assert_verified(postgres_url)
