"""The reaper: an expired lease is taken back, once, by one reaper per period; after an outage nothing is, too soon."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.domain.answers import Settled, Status
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import reap as statements
from holdfast.stores.types import to_text
from holdfast.stores.verbs import reaping
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import (
    BROKEN,
    EXACT,
    beat,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    job_in,
    lose_lease,
    reap,
    settle,
    settle_well,
    start,
)


def test_an_expired_lease_is_taken_back(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(60.001)
    reaped = reap(store)
    assert reaped.ticked
    assert reaped.settled == (Settled(claimed.job_id, 1, Status.APPLIED, "lease_lost", State.PENDING),)
    job = store.job(claimed.job_id)
    assert (job.state, job.failures, job.crashes, job.attempt) == (State.PENDING, 0, 1, 1)
    assert (job.lease_owner, job.lease_expires_at, job.run_after) == (None, None, clock.now())
    assert job.last_error is not None
    assert (job.last_error["code"], job.last_error["retryable"]) == ("worker_lost", True)
    event = store.events(claimed.job_id)[-1]
    assert (event.event, event.from_state, event.to_state) == ("lease_lost", "running", "pending")
    assert (event.attempt, event.worker) == (1, "ann")
    assert event.detail is not None
    assert event.detail["by"] == "reaper"
    assert claim(store, "bob").attempt == 2


def test_a_live_lease_is_left_alone(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    start(store)
    start(store, lease_seconds=120)
    clock.move(60)
    before = by_hand.everything()
    assert reap(store).settled == ()
    assert {k: v for k, v in by_hand.everything().items() if k != "holdfast_duties"} == {
        k: v for k, v in before.items() if k != "holdfast_duties"
    }


def test_each_lease_has_its_own_length(store: SqlStore, clock: Clock) -> None:
    reap(store)
    short, long = start(store, lease_seconds=5), start(store, lease_seconds=300)
    clock.move(6)
    assert [settled.job_id for settled in reap(store).settled] == [short.job_id]
    assert store.job(long.job_id).state is State.RUNNING


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_only_running_jobs_are_reaped(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    clock.move(1_000_000)
    assert reap(store).settled == ()
    assert store.job(job_id) == before


def test_the_second_lease_lost_backs_off(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=9, max_crashes=9, retry=EXACT)
    waits = []
    for _ in range(4):
        lose_lease(store, clock, claimed)
        event = store.events(claimed.job_id)[-1]
        waits.append((store.job(claimed.job_id).run_after - event.at).total_seconds())
        clock.move(100)
        claimed = claim_this(store, claimed.job_id)
    assert waits == [0, 10, 20, 40]


def test_a_job_that_kills_its_worker_is_dead_lettered_after_three_crashes(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    for _ in range(2):
        lose_lease(store, clock, claimed)
        clock.move(20)
        claimed = claim_this(store, claimed.job_id)
    lose_lease(store, clock, claimed)
    job = store.job(claimed.job_id)
    assert (job.state, job.crashes, job.failures) == (State.FAILED, 3, 0)
    assert job.finished_at is not None
    assert job.last_error is not None
    assert (job.last_error["code"], job.last_error["retryable"]) == ("worker_lost", False)
    event = store.events(claimed.job_id)[-1]
    assert (event.event, event.to_state) == ("failed", "failed")
    assert event.detail is not None
    assert event.detail["reason"] == "worker_lost"


def test_failures_count_towards_the_budget_that_a_lost_lease_ends(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=2)
    settle_well(store, claimed, BROKEN)
    clock.move(13)
    lose_lease(store, clock, claim_this(store, claimed.job_id))
    job = store.job(claimed.job_id)
    assert (job.state, job.failures, job.crashes) == (State.FAILED, 1, 1)


def test_a_cancel_that_was_requested_is_carried_out(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    clock.move(61)
    [settled] = reap(store).settled
    assert (settled.event, settled.state) == ("cancelled", State.CANCELLED)
    assert store.job(claimed.job_id).crashes == 0


def test_a_heartbeat_in_time_saves_the_job(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(61)
    store.heartbeat([beat(claimed)])
    assert reap(store).settled == ()


def test_more_than_a_page_of_expired_leases_over_several_queues(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    for number in range(5):
        enqueue_many(store, 250, queue=f"queue-{number}")
    assert len(store.claim("ann", 1_250)) == 1_250
    alive = start(store, queue="queue-2", lease_seconds=600)
    clock.move(61)
    reaped = reap(store)
    assert len(reaped.settled) == len({settled.job_id for settled in reaped.settled}) == 1_250
    assert by_hand.count("holdfast_jobs", "state = 'running'") == 1
    assert store.job(alive.job_id).state is State.RUNNING
    assert len(claim_ids(store, 2_000)) == 1_250


def test_a_job_that_cannot_be_judged_does_not_stop_the_reaper(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    """An operator may write any JSON into a policy; the other jobs' leases must not hang on it."""
    odd, plain = start(store, queue="a"), start(store, queue="b")
    by_hand("UPDATE holdfast_jobs SET retry = :policy WHERE id = :id", policy='{"kind": "random"}', id=odd.job_id)
    clock.move(61)
    assert plain.job_id in [settled.job_id for settled in reap(store).settled]
    clock.move(20)
    reap(store)
    assert store.job(odd.job_id).state is not State.RUNNING, "nor may it run for ever"


def test_a_job_that_cannot_be_judged_does_not_spoil_its_batch(store: SqlStore, by_hand: ByHand) -> None:
    odd, plain = start(store), start(store)
    by_hand("UPDATE holdfast_jobs SET retry = :policy WHERE id = :id", policy="[]", id=odd.job_id)
    for claimed in (odd, plain):
        assert settle(store, claimed, BROKEN).status is Status.APPLIED


# One reaper per period


def test_one_winner_per_period(store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]) -> None:
    other = open_again()
    start(store, lease_seconds=1)
    clock.move(2)
    assert store.reap("one", period=10).ticked
    start(store, lease_seconds=1)
    clock.move(5)
    for _ in range(3):
        late = other.reap("two", period=10)
        assert (late.ticked, late.settled) == (False, ())
    clock.move(5)
    assert len(other.reap("two", period=10).settled) == 1
    assert not store.reap("one", period=10).ticked


def test_the_duty_says_who_ticked_and_when(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.reap("one", period=10)
    clock.move(10)
    store.reap("two", period=10)
    [(name, holder, outage)] = by_hand("SELECT name, holder, outage_ended_at FROM holdfast_duties")
    assert (name, holder, outage) == ("reaper", "two", None)


@pytest.mark.parametrize("back", [3_600, 100_000_000])
def test_a_clock_that_was_ahead_does_not_stop_the_reaper(store: SqlStore, clock: Clock, back: float) -> None:
    store.reap("one", period=10)
    clock.move(-back)
    claimed = start(store, lease_seconds=30)
    clock.move(31)
    assert [settled.job_id for settled in store.reap("one", period=10).settled] == [claimed.job_id]


def test_a_clock_a_little_ahead_delays_it_a_little(store: SqlStore, clock: Clock) -> None:
    store.reap("one", period=10)
    clock.move(-30)
    assert not store.reap("one", period=10).ticked
    clock.move(40)
    assert store.reap("one", period=10).ticked


def test_an_outage_recorded_by_a_clock_that_was_ahead_ends_too(store: SqlStore, clock: Clock) -> None:
    reap(store)
    clock.move(3_600)
    reap(store)  # notes an outage that ended now
    clock.move(-3_000)
    claimed = start(store, lease_seconds=30)
    for _ in range(4):
        clock.move(30.001)
        reap(store)
    assert history(store, claimed.job_id)[2] == "lease_lost", "two minutes are four leases"


# After an outage


def ended_outages(by_hand: ByHand) -> int:
    return by_hand.count("holdfast_duties", "outage_ended_at IS NOT NULL")


def test_after_an_outage_nothing_is_reaped_before_one_full_lease_of_its_own(store: SqlStore, clock: Clock) -> None:
    reap(store)
    short = start(store, lease_seconds=10)
    usual = start(store, lease_seconds=60)
    long = start(store, lease_seconds=300)
    clock.move(1_000)
    assert reap(store).settled == (), "this tick is the first for 1,000 seconds: there was an outage"
    reaped: dict[str, float] = {}
    for second in range(5, 330, 5):
        clock.move(5)
        for settled in reap(store).settled:
            reaped[settled.job_id] = second
    assert reaped == {short.job_id: 10, usual.job_id: 60, long.job_id: 300}


def test_the_worker_that_was_cut_off_can_still_release(store: SqlStore, clock: Clock) -> None:
    """A store outage charges nothing."""
    reap(store)
    claims = [start(store) for _ in range(20)]
    clock.move(600)
    reap(store)
    clock.move(30)
    reap(store)
    for claimed in claims:
        assert settle(store, claimed, Succeeded()).status is Status.APPLIED
    assert {store.job(claimed.job_id).crashes for claimed in claims} == {0}


def test_a_job_claimed_after_the_outage_is_reaped_in_its_own_time(store: SqlStore, clock: Clock) -> None:
    reap(store)
    clock.move(600)
    reap(store)
    clock.move(30)
    reap(store)
    claimed = start(store, lease_seconds=20)
    clock.move(20.001)
    assert [settled.job_id for settled in reap(store).settled] == [claimed.job_id]


@pytest.mark.parametrize(("gap", "outage"), [(39.0, 0), (40.0, 0), (40.1, 1), (3_600.0, 1)])
def test_an_outage_is_a_gap_longer_than_a_lease_less_a_heartbeat(
    store: SqlStore, clock: Clock, by_hand: ByHand, gap: float, outage: int
) -> None:
    reap(store, lease_seconds=60, heartbeat_seconds=20)
    clock.move(gap)
    reap(store, lease_seconds=60, heartbeat_seconds=20)
    assert ended_outages(by_hand) == outage


def test_the_first_tick_ever_is_no_outage(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    claimed = start(store)
    clock.move(10_000)
    assert [settled.job_id for settled in reap(store).settled] == [claimed.job_id]
    assert ended_outages(by_hand) == 0


def test_a_second_outage_is_a_new_one(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    reap(store)
    clock.move(100)
    reap(store)
    clock.move(100)
    claimed = start(store, lease_seconds=10)
    reap(store)
    assert by_hand.count("holdfast_duties", f"outage_ended_at = '{to_text(clock.now())}'") == 1
    clock.move(9.999)
    assert reap(store).settled == ()
    clock.move(0.001 + 0.001)
    assert [settled.job_id for settled in reap(store).settled] == [claimed.job_id]


# The decision is tested again in the write


@on_postgres
def test_a_locked_row_is_left_for_the_next_pass(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    locked, free = start(store), start(store)
    clock.move(61)
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR UPDATE", id=locked.job_id)
        assert [settled.job_id for settled in reap(store).settled] == [free.job_id]
    assert [settled.job_id for settled in reap(store).settled] == [locked.job_id]


def test_what_was_read_before_and_has_moved_on_is_not_reaped(
    store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]
) -> None:
    """Completed, or completed, requeued and claimed again, between the reaper's reading and its writing."""
    other = open_again()
    finished, reborn, renewed = start(store), start(store), start(store)
    clock.move(61)
    with other.database.reading() as transaction:
        read = transaction.rows(
            statements.EXPIRED, {"queue": "", "id": "00000000-0000-0000-0000-000000000000", "page": 500}
        )
    assert len(read) == 3
    settle_well(store, finished, Succeeded())
    settle_well(store, reborn, BROKEN)
    store.cancel([reborn.job_id])
    store.requeue([reborn.job_id])
    claim_this(store, reborn.job_id, "bob")
    store.heartbeat([beat(renewed)])
    before = [store.job(one.job_id) for one in (finished, reborn, renewed)]
    with other.database.statement() as transaction:
        assert reaping.apply(transaction, read) == []
    assert [store.job(one.job_id) for one in (finished, reborn, renewed)] == before


def test_expiry_is_measured_by_the_store_s_clock(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, lease_seconds=30)
    assert store.job(claimed.job_id).lease_expires_at == clock.now() + timedelta(seconds=30)
    clock.move(30)
    assert reap(store).settled == (), "to the very moment it is the worker's"
    clock.move(0.001)
    assert len(reap(store).settled) == 1
    assert enqueue(store)
