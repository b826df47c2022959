"""A reaper that is stopped between its read and its write: what happened to a job meanwhile stands.

There are two barriers. One, on both stores, lies between the reading of a page and the writing of it. The other, on
Postgres, lies in the middle of the writing statement, after its snapshot was taken and before it has locked a row: the
row that the statement looks at is then not the row that it would change.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from sqlalchemy import make_url

from holdfast.domain.answers import Beat, Operated, Reaped, Status
from holdfast.domain.job import AuditEvent, Claimed, Job, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.database import Database, Row
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import reaping
from tests.chaos.databases import MovableClock, assert_verified, connect, opened, query
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

LEASE = 60.0
AT_ONCE = RetryPolicy(kind="fixed", base=0.0, jitter=0.0)
BARRIER = 4711
# Two leases ahead of the claims, and a lock in the way of the reaper when it has begun to write.
STOPPING_CLOCK = f"""
    CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
      IF current_setting('application_name') = 'reaper' AND current_query() LIKE '%UPDATE holdfast_jobs%' THEN
        PERFORM pg_advisory_xact_lock_shared({BARRIER});
      END IF;
      RETURN clock_timestamp() + interval '{2 * LEASE} seconds';
    END $$"""
AT_THE_BARRIER = f"""
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE datname = current_database() AND objid = {BARRIER} AND locktype = 'advisory' AND NOT granted"""

Meanwhile = Callable[[SqlStore, Claimed], None]


def settle(store: SqlStore, lease: Claimed, outcome: Outcome) -> None:
    [answer] = store.settle([Report(lease.job_id, lease.attempt, lease.lease_token, outcome, "late")])
    assert answer.status is Status.APPLIED


def claim_again(store: SqlStore, lease: Claimed) -> None:
    again = store.claim_job("another", lease.job_id)
    assert again is not None
    assert again.attempt == lease.attempt + 1


def reap(store: SqlStore) -> Reaped:
    return store.reap("reaper", period=0, lease_seconds=LEASE, heartbeat_seconds=20)


def completed(store: SqlStore, lease: Claimed) -> None:
    settle(store, lease, Succeeded({"late": True}))


def failed_requeued_and_claimed_again(store: SqlStore, lease: Claimed) -> None:
    settle(store, lease, Failed(JobError("broken", "do not", retryable=False)))
    assert [answer.did for answer in store.requeue([lease.job_id])] == [Operated.REQUEUED]
    claim_again(store, lease)


def retried_and_claimed_again(store: SqlStore, lease: Claimed) -> None:
    settle(store, lease, Failed(JobError("flaky", "try again")))
    claim_again(store, lease)


def released_and_claimed_again(store: SqlStore, lease: Claimed) -> None:
    settle(store, lease, Released())
    claim_again(store, lease)


def snoozed(store: SqlStore, lease: Claimed) -> None:
    settle(store, lease, Snoozed(3600))


def heartbeaten(store: SqlStore, lease: Claimed) -> None:
    [answer] = store.heartbeat([Beat(lease.job_id, lease.attempt, lease.lease_token)])
    assert answer.status is Status.APPLIED


def claimed_by_its_id(store: SqlStore, lease: Claimed) -> None:
    """Which reaps the expired lease first, and so leaves the reaper nothing."""
    claim_again(store, lease)


MEANWHILE = [
    completed,
    failed_requeued_and_claimed_again,
    retried_and_claimed_again,
    released_and_claimed_again,
    snoozed,
    heartbeaten,
    claimed_by_its_id,
]


@contextmanager
def stopped_between_read_and_write(store: SqlStore) -> Iterator[Future[Reaped]]:
    """The first reaper stops with its page in its hands; those after it pass."""
    reached, over = Event(), Event()
    read = reaping._expired_pages

    def pages(database: Database) -> Iterator[list[Row]]:
        for page in read(database):
            if not reached.is_set():
                reached.set()
                assert over.wait(DEADLINE_SECONDS)
            yield page

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr(reaping, "_expired_pages", pages)
        reaper = thread.submit(reap, store)
        try:
            assert reached.wait(DEADLINE_SECONDS)
            yield reaper
        finally:
            over.set()


@contextmanager
def stopped_inside_its_statement(url: str) -> Iterator[Future[Reaped]]:
    named = make_url(url).update_query_dict({"application_name": "reaper"}).render_as_string(hide_password=False)
    query(url, STOPPING_CLOCK)
    with connect(url, autocommit=True) as gate, opened(named) as store, ThreadPoolExecutor(1) as thread:
        gate.execute(f"SELECT pg_advisory_lock({BARRIER})")
        try:
            reaper = thread.submit(reap, store)
            wait_until(lambda: query(url, AT_THE_BARRIER) == [(1,)], what="the reaper is in its statement")
            yield reaper
        finally:
            gate.execute(f"SELECT pg_advisory_unlock({BARRIER})")


def claimed_jobs(store: SqlStore) -> tuple[Claimed, Claimed]:
    """One whose worker comes back in time, and one whose worker does not."""
    store.enqueue_many([NewJob(task="slow", retry=AT_ONCE, lease_seconds=LEASE)] * 2)
    late, dead = store.claim("first", 2)
    return late, dead


def record(store: SqlStore, lease: Claimed) -> tuple[Job, list[AuditEvent]]:
    return store.job(lease.job_id), store.events(lease.job_id)


def reaped_jobs(reaper: Future[Reaped]) -> list[str]:
    return [settled.job_id for settled in reaper.result(DEADLINE_SECONDS).settled]


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda meanwhile: meanwhile.__name__)
def test_stale_page_changes_nothing_of_a_job_that_was(
    meanwhile: Meanwhile, clock: MovableClock, store_url: str
) -> None:
    late, dead = claimed_jobs(clock.store)
    clock.advance(2 * LEASE)
    with stopped_between_read_and_write(clock.store) as reaper:
        meanwhile(clock.store, late)
        before = record(clock.store, late)
    assert reaped_jobs(reaper) == [dead.job_id]
    assert record(clock.store, late) == before
    assert_verified(store_url)


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda meanwhile: meanwhile.__name__)
def test_statement_that_began_too_early_changes_nothing_of_a_job_that_was(
    meanwhile: Meanwhile, postgres_store: SqlStore, postgres_url: str
) -> None:
    late, dead = claimed_jobs(postgres_store)
    with stopped_inside_its_statement(postgres_url) as reaper:
        meanwhile(postgres_store, late)
        before = record(postgres_store, late)
    assert reaped_jobs(reaper) == [dead.job_id]
    assert record(postgres_store, late) == before
    assert_verified(postgres_url)


def test_lease_that_is_claimed_behind_the_reapers_back_is_still_good(clock: MovableClock, store_url: str) -> None:
    late, _dead = claimed_jobs(clock.store)
    clock.advance(2 * LEASE)
    with stopped_between_read_and_write(clock.store):
        settle(clock.store, late, Released())
        [again] = [job for job in clock.store.claim("another", 1) if job.job_id == late.job_id]
    settle(clock.store, again, Succeeded())
    assert clock.store.job(late.job_id).state is State.SUCCEEDED
    assert clock.store.job(late.job_id).crashes == 0
    assert_verified(store_url)


def test_two_reapers_with_the_same_page_charge_one_crash(clock: MovableClock, store_url: str) -> None:
    leases = claimed_jobs(clock.store)
    clock.advance(2 * LEASE)
    with stopped_between_read_and_write(clock.store) as slow:
        quick = reap(clock.store)
    assert sorted(settled.job_id for settled in quick.settled) == sorted(lease.job_id for lease in leases)
    assert reaped_jobs(slow) == []
    assert [clock.store.job(lease.job_id).crashes for lease in leases] == [1, 1]
    assert_verified(store_url)


def test_cancel_requested_behind_the_reapers_back_is_obeyed(clock: MovableClock, store_url: str) -> None:
    late, _dead = claimed_jobs(clock.store)
    clock.advance(2 * LEASE)
    with stopped_between_read_and_write(clock.store) as reaper:
        assert [answer.did for answer in clock.store.cancel([late.job_id])] == [Operated.CANCEL_REQUESTED]
    assert late.job_id in reaped_jobs(reaper)
    job = clock.store.job(late.job_id)
    assert (job.state, job.crashes) == (State.CANCELLED, 0)
    assert_verified(store_url)


def test_cancel_requested_while_the_statement_runs_is_obeyed(postgres_store: SqlStore, postgres_url: str) -> None:
    late, _dead = claimed_jobs(postgres_store)
    with stopped_inside_its_statement(postgres_url) as reaper:
        assert [answer.did for answer in postgres_store.cancel([late.job_id])] == [Operated.CANCEL_REQUESTED]
    assert late.job_id in reaped_jobs(reaper)
    job = postgres_store.job(late.job_id)
    assert (job.state, job.crashes) == (State.CANCELLED, 0)
    assert_verified(postgres_url)
