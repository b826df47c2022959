"""The store was away for longer than a lease: nobody is reaped who could not have sent a heartbeat.

The outage is made by moving the store's clock: from where it stands, nothing happened for ten leases.
"""

import pytest

from holdfast.domain.answers import Beat, Status
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import MovableClock, assert_verified, query

RUNNING = 200
# A hundred times the defaults, so that the time which the test itself takes counts for nothing.
LEASE = 6_000.0
HEARTBEAT = 2_000.0
PERIOD = 1_000.0
SLACK = 0.5  # SQLite keeps some times to the millisecond; nothing here hangs on one
OUTAGE = 60_000.0


def reap(store: SqlStore) -> list[str]:
    reaped = store.reap("reaper", period=PERIOD - SLACK, lease_seconds=LEASE, heartbeat_seconds=HEARTBEAT)
    assert reaped.ticked
    return [settled.job_id for settled in reaped.settled]


def reap_for(clock: MovableClock, seconds: float) -> list[str]:
    """A reaper that is on duty all the time: one pass a period."""
    reaped: list[str] = []
    for _ in range(round(seconds / PERIOD)):
        clock.advance(PERIOD)
        reaped += reap(clock.store)
    return reaped


def run_jobs(clock: MovableClock, count: int = RUNNING, lease_seconds: float = LEASE) -> list[Claimed]:
    """Jobs that run, in a fleet whose reaper has been on duty."""
    clock.store.enqueue_many([NewJob(task="long", lease_seconds=lease_seconds)] * count)
    clock.advance(PERIOD)
    assert reap(clock.store) == []
    return clock.store.claim("worker", count)


def beats(leases: list[Claimed]) -> list[Beat]:
    return [Beat(lease.job_id, lease.attempt, lease.lease_token) for lease in leases]


def complete(store: SqlStore, leases: list[Claimed]) -> set[Status]:
    reports = [Report(lease.job_id, lease.attempt, lease.lease_token, Succeeded(), "worker") for lease in leases]
    return {answer.status for answer in store.settle(reports)}


def ids(leases: list[Claimed]) -> list[str]:
    return sorted(lease.job_id for lease in leases)


def test_nothing_is_reaped_before_a_full_lease_after_the_outage(clock: MovableClock, store_url: str) -> None:
    leases = run_jobs(clock)
    clock.advance(OUTAGE)
    assert reap(clock.store) == []
    assert reap_for(clock, LEASE - PERIOD) == []
    # Then whoever has not been heard of is reaped: each once, by one pass.
    assert sorted(reap_for(clock, 2 * PERIOD)) == ids(leases)
    assert reap_for(clock, 2 * LEASE) == []
    assert clock.store.counts() == {"pending": RUNNING}
    assert query(store_url, "SELECT count(*) FROM holdfast_events WHERE event = 'lease_lost'") == [(RUNNING,)]
    assert query(store_url, "SELECT max(crashes), min(crashes) FROM holdfast_jobs") == [(1, 1)]
    assert_verified(store_url)


def test_workers_that_come_back_go_on_under_their_original_attempt(clock: MovableClock, store_url: str) -> None:
    leases = run_jobs(clock)
    done, releasing, going_on, gone = leases[:50], leases[50:100], leases[100:150], leases[150:]
    clock.advance(OUTAGE)
    # Two of them are quicker than the reaper, two come in the middle of the grace.
    assert complete(clock.store, done) == {Status.APPLIED}
    assert {answer.status for answer in clock.store.heartbeat(beats(going_on))} == {Status.APPLIED}
    assert reap_for(clock, LEASE / 2) == []
    released = [Report(it.job_id, it.attempt, it.lease_token, Released("store was away")) for it in releasing]
    assert {answer.status for answer in clock.store.settle(released)} == {Status.APPLIED}
    assert {answer.status for answer in clock.store.heartbeat(beats(going_on))} == {Status.APPLIED}
    assert sorted(reap_for(clock, LEASE - PERIOD)) == ids(gone)
    assert complete(clock.store, going_on) == {Status.APPLIED}
    assert clock.store.counts() == {"succeeded": 100, "pending": 100}
    # An outage charges nothing; only those who never came back have a crash on record.
    assert query(store_url, "SELECT sum(crashes), sum(failures), max(attempt) FROM holdfast_jobs") == [(50, 0, 1)]
    assert clock.store.refusals() == []
    assert_verified(store_url)


def test_longer_lease_has_a_longer_grace(clock: MovableClock, store_url: str) -> None:
    short = run_jobs(clock, 20)
    long = run_jobs(clock, 20, lease_seconds=5 * LEASE)
    clock.advance(OUTAGE)
    assert reap(clock.store) == []
    assert sorted(reap_for(clock, LEASE + PERIOD)) == ids(short)
    assert reap_for(clock, 4 * LEASE - 2 * PERIOD) == []
    assert sorted(reap_for(clock, 2 * PERIOD)) == ids(long)
    assert_verified(store_url)


def test_second_outage_begins_the_grace_again(clock: MovableClock, store_url: str) -> None:
    leases = run_jobs(clock, 20)
    clock.advance(OUTAGE)
    assert reap_for(clock, LEASE / 2) == []
    clock.advance(OUTAGE)
    assert reap_for(clock, LEASE) == []
    assert sorted(reap_for(clock, 2 * PERIOD)) == ids(leases)
    assert_verified(store_url)


@pytest.mark.parametrize("reaper_was_first", [True, False], ids=["after the reaper's pass", "before any reaper's pass"])
def test_claiming_by_id_waits_for_the_end_of_the_grace_too(
    reaper_was_first: bool, clock: MovableClock, store_url: str
) -> None:
    """A message names a job whose worker has just lived through an outage."""
    [lease] = run_jobs(clock, 1)
    clock.advance(OUTAGE)
    if reaper_was_first:
        assert reap(clock.store) == []
    assert clock.store.claim_job("another", lease.job_id) is None
    assert complete(clock.store, [lease]) == {Status.APPLIED}
    job = clock.store.job(lease.job_id)
    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)
    assert_verified(store_url)


def test_short_pause_is_no_outage(clock: MovableClock, store_url: str) -> None:
    """A reaper that missed a pass or two still reaps at once."""
    leases = run_jobs(clock, 20)
    assert reap_for(clock, LEASE - 2 * PERIOD) == []
    clock.advance(LEASE - HEARTBEAT - PERIOD)
    assert sorted(reap(clock.store)) == ids(leases)
    assert_verified(store_url)
