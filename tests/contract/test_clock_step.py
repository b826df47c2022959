"""A store clock that was ahead and is set back: what was due stays due, and leases end in their own time."""

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from holdfast.domain.answers import ClockCorrection, Status
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Outcome, Released, Snoozed, Succeeded
from holdfast.domain.schedule import Declaration
from holdfast.domain.sources import Breaker
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import reap as reap_statements
from holdfast.stores.verbs import clock_step
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import (
    BROKEN,
    EXACT,
    HOPELESS,
    KILLED,
    beat,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    reap,
    settle,
    settle_well,
    start,
)

HOUR = 3_600.0
PERIOD = 10.0
LEASE = 60.0


@pytest.fixture(autouse=True)
def passes_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine: a pass that takes long leaves the rest to the next one."""
    monkeypatch.setattr(clock_step, "MAX_PASS_SECONDS", math.inf)


def step_back(store: SqlStore, clock: Clock, seconds: float = HOUR) -> None:
    """The reaper passes, the clock is set back, the reaper passes again."""
    reap(store)
    clock.move(-seconds)
    reap(store)


def reap_for(store: SqlStore, clock: Clock, seconds: float) -> list[str]:
    reaped: list[str] = []
    for _ in range(round(seconds / PERIOD)):
        clock.move(PERIOD)
        reaped += [settled.job_id for settled in reap(store).settled]
    return reaped


# Leases


def test_lease_of_dead_worker_ends_one_lease_after_the_step(store: SqlStore, clock: Clock) -> None:
    dead, long = start(store), start(store, lease_seconds=300)
    step_back(store, clock)
    assert store.job(dead.job_id).lease_expires_at == clock.now() + timedelta(seconds=LEASE)
    assert reap_for(store, clock, LEASE) == []
    assert reap_for(store, clock, PERIOD) == [dead.job_id]
    assert reap_for(store, clock, 300 - LEASE - PERIOD) == []
    assert reap_for(store, clock, PERIOD) == [long.job_id]


def test_lease_with_heartbeats_is_corrected_as_well(store: SqlStore, clock: Clock) -> None:
    dead = start(store)
    clock.move(30)
    store.heartbeat([beat(dead)])
    step_back(store, clock)
    assert reap_for(store, clock, LEASE + PERIOD) == [dead.job_id]


def test_live_worker_keeps_its_lease_across_the_step(store: SqlStore, clock: Clock) -> None:
    live = start(store)
    step_back(store, clock)
    for _ in range(10):
        assert reap_for(store, clock, 20) == []
        [beaten] = store.heartbeat([beat(live)])
        assert beaten.status is Status.APPLIED
    assert settle(store, live, Succeeded()).status is Status.APPLIED
    assert history(store, live.job_id) == ["enqueued", "claimed", "succeeded"]


def test_leases_are_corrected_without_any_tick_from_the_future(store: SqlStore, clock: Clock) -> None:
    """The clock was ahead for less than a period of the reaper."""
    reap(store)
    clock.move(HOUR)
    dead = start(store)
    clock.move(-HOUR)
    assert reap(store).clock == ClockCorrection(None, leases=1)
    assert reap_for(store, clock, LEASE + PERIOD) == [dead.job_id]


def test_lease_that_an_operator_lengthened_is_left_alone(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    held = start(store)
    typed = (clock.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    by_hand(f"UPDATE holdfast_jobs SET lease_expires_at = '{typed}'")
    for _ in range(3):
        assert reap(store).clock is None
        clock.move(PERIOD)
    before = store.job(held.job_id)
    assert before.lease_expires_at is not None
    assert before.lease_expires_at > clock.now() + timedelta(hours=23)


# Jobs that were due


def test_due_jobs_stay_due(store: SqlStore, clock: Clock) -> None:
    ids = enqueue_many(store, 5)
    step_back(store, clock)
    assert claim_ids(store) == ids


def test_due_jobs_stay_due_in_pages(store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_step, "PAGE", 3)
    ids = enqueue_many(store, 10)
    running = [claim_this(store, job_id).job_id for job_id in enqueue_many(store, 10, "other")]
    reap(store)
    clock.move(-HOUR)
    assert reap(store).clock == ClockCorrection(HOUR, leases=10, jobs=10)
    assert claim_ids(store) == ids
    assert {store.job(job_id).lease_expires_at for job_id in running} == {clock.now() + timedelta(seconds=LEASE)}


def test_pass_ends_in_time_and_the_next_one_continues(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_step, "PAGE", 2)
    monkeypatch.setattr(clock_step, "MAX_PASS_SECONDS", -1.0)
    ids = enqueue_many(store, 5)
    reap(store)
    clock.move(-HOUR)
    corrected = []
    for _ in range(4):
        found = reap(store).clock
        assert found is not None
        corrected.append(found.jobs)
        clock.move(PERIOD)
    assert corrected == [2, 2, 1, 0]
    assert sorted(claim_ids(store)) == sorted(ids)


def test_step_of_a_minute_is_waited_out(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    job_id = enqueue(store)
    start(store, "other")
    reap(store)
    clock.move(-60)
    before = by_hand.everything()
    assert not reap(store).ticked
    assert by_hand.everything() == before
    clock.move(60)
    assert claim(store).job_id == job_id


def test_job_of_a_schedule_that_fired_late_stays_due(store: SqlStore, clock: Clock) -> None:
    store.announce_schedules([Declaration(name="tidy", task="add", every_seconds=600)])
    clock.move(605)
    [tick] = store.fire_schedules("ann").ticks
    step_back(store, clock)
    assert claim(store).job_id == tick.job_id


def test_delayed_job_that_had_become_due_stays_due(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, delay=300)
    clock.move(600)
    step_back(store, clock)
    assert claim_ids(store) == [job_id]


def test_start_time_that_had_not_come_is_left_alone(store: SqlStore, clock: Clock) -> None:
    at = clock.now() + timedelta(minutes=10)
    job_id = enqueue(store, run_after=at)
    step_back(store, clock)
    assert store.job(job_id).run_after == at


def test_jobs_enqueued_after_the_step_keep_their_delay(store: SqlStore, clock: Clock) -> None:
    reap(store)
    clock.move(-HOUR)
    before = enqueue(store, delay=120)
    due_at = clock.now() + timedelta(seconds=120)
    reap(store)
    after = enqueue(store, delay=120)
    assert reap_for(store, clock, 110) == []
    assert claim_ids(store) == []
    assert (store.job(before).run_after, store.job(after).run_after) == (due_at, due_at)
    clock.move(PERIOD)
    assert claim_ids(store) == [before, after]


def test_job_released_after_the_step_is_due(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    step_back(store, clock)
    settle_well(store, claimed, Released("deploy"))
    clock.move(PERIOD)
    reap(store)
    assert claim(store).job_id == claimed.job_id


# Retries and snoozes


@pytest.mark.parametrize(
    ("outcome", "delay"), [(BROKEN, 10), (Snoozed(120.0, "not yet"), 120)], ids=["retry", "snooze"]
)
def test_delay_keeps_its_rest(store: SqlStore, clock: Clock, outcome: Outcome, delay: float) -> None:
    claimed = start(store, retry=EXACT)
    settle_well(store, claimed, outcome)
    clock.move(4)
    step_back(store, clock)
    due_at = clock.now() + timedelta(seconds=delay - 4)
    assert store.job(claimed.job_id).run_after == due_at
    clock.move(2)
    reap(store)
    assert store.job(claimed.job_id).run_after == due_at, "a second pass changes nothing"
    assert claim_ids(store) == []
    clock.move(delay - 6)
    assert claim_ids(store) == [claimed.job_id]


def test_delay_that_was_over_is_over(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, retry=EXACT)
    settle_well(store, claimed, BROKEN)
    clock.move(60)
    step_back(store, clock)
    assert claim_ids(store) == [claimed.job_id]


def test_retry_scheduled_after_the_step_keeps_its_delay(store: SqlStore, clock: Clock) -> None:
    """Its `updated_at` stays in the future, because it never decreases."""
    early, late = start(store, retry=EXACT), start(store, retry=EXACT)
    reap(store)
    clock.move(-HOUR)
    settle_well(store, early, BROKEN)
    reap(store)
    settle_well(store, late, KILLED)
    settle_well(store, claim_this(store, late.job_id), KILLED)
    clock.move(1)
    reap(store)
    expected = clock.now() + timedelta(seconds=9)
    assert {store.job(claimed.job_id).run_after for claimed in (early, late)} == {expected}
    assert claim_ids(store) == []


def test_start_time_that_an_operator_typed_is_left_alone(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    claimed = start(store, retry=EXACT)
    settle_well(store, claimed, BROKEN)
    typed = clock.now() + timedelta(days=1)
    by_hand(f"UPDATE holdfast_jobs SET run_after = '{typed.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z'")
    step_back(store, clock)
    assert store.job(claimed.job_id).run_after == typed


# Sources and workers


def test_rate_limited_source_refills_after_the_step(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=1, burst=1)
    first, second = enqueue_many(store, 2, source="shop")
    assert claim_ids(store) == [first]
    step_back(store, clock)
    assert claim_ids(store) == []
    clock.move(60)
    assert claim_ids(store) == [second]


def test_breaker_pause_keeps_its_rest(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=1, breaker_pause_seconds=300)
    settle_well(store, start(store, source="shop"), HOPELESS)
    waiting = enqueue(store, source="shop")
    clock.move(100)
    step_back(store, clock)
    assert store.source("shop").paused_until == clock.now() + timedelta(seconds=200)
    reap_for(store, clock, 190)
    assert claim_ids(store) == []
    clock.move(10)
    assert store.source("shop").breaker is Breaker.HALF_OPEN
    probe = claim(store)
    assert probe.job_id == waiting
    settle_well(store, probe, Succeeded())
    assert store.source("shop").breaker is Breaker.CLOSED


def test_breaker_pause_that_was_over_is_over(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=1, breaker_pause_seconds=300)
    settle_well(store, start(store, source="shop"), HOPELESS)
    waiting = enqueue_many(store, 2, source="shop")
    clock.move(301)
    step_back(store, clock)
    assert claim_ids(store) == waiting[:1], "one probe"


def test_probe_from_before_the_step_is_still_the_only_one(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=1, breaker_pause_seconds=300)
    settle_well(store, start(store, source="shop"), HOPELESS)
    enqueue_many(store, 2, source="shop")
    clock.move(301)
    [probe] = store.claim("ann", 10)
    step_back(store, clock)
    assert claim_ids(store) == []
    settle_well(store, probe, Succeeded())
    assert len(claim_ids(store)) == 1


def test_pause_by_an_operator_is_left_alone(store: SqlStore, clock: Clock) -> None:
    until = clock.now() + timedelta(minutes=10)
    store.set_source("shop", paused_until=until)
    step_back(store, clock)
    assert store.source("shop").paused_until == until


def test_dead_worker_does_not_count_as_alive(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    typed = clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    by_hand(
        "INSERT INTO holdfast_workers (id, host, pid, state, processes, slots, running, version, started_at, beat_at)"
        f" VALUES ('dead', 'here', 1, 'running', 1, 1, 0, '1', '{typed}', '{typed}')"
    )
    step_back(store, clock)
    [worker] = store.workers()
    assert worker.beat_at == clock.now()


# How the step is noticed


def test_step_without_any_reaper_is_noticed_by_the_first_one(store: SqlStore, clock: Clock) -> None:
    job_id, dead = enqueue(store), start(store, "other")
    clock.move(-HOUR)
    found = reap(store).clock
    assert found == ClockCorrection(HOUR, leases=1, jobs=1)
    assert claim_ids(store) == [job_id]
    assert sorted(reap_for(store, clock, LEASE + PERIOD)) == sorted([dead.job_id, job_id])


def test_step_while_every_reaper_was_away_is_noticed(store: SqlStore, clock: Clock) -> None:
    reap(store)
    clock.move(2 * HOUR)
    job_id = enqueue(store)
    clock.move(-HOUR)
    reap(store)
    assert claim_ids(store) == [job_id]


def test_reaper_that_dies_after_its_tick_leaves_the_correction_to_the_next(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store)
    reap(store)
    clock.move(-HOUR)
    with store.database.statement() as transaction:
        assert transaction.rows(reap_statements.TICK, {"holder": "dies", "period": 0.0, "gap": 40.0})
    clock.move(PERIOD)
    reap(store)
    assert claim_ids(store) == [job_id]


def test_second_step_is_corrected_as_well(store: SqlStore, clock: Clock) -> None:
    first = enqueue(store)
    step_back(store, clock)
    second, delayed = enqueue(store), enqueue(store, delay=300)
    due_at = store.job(delayed).run_after
    clock.move(PERIOD)
    step_back(store, clock)
    assert claim_ids(store) == [first, second]
    assert store.job(delayed).run_after == due_at, "it had not become due"


def test_clock_that_is_right_again_ends_the_corrections(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    step_back(store, clock)
    assert reap(store).clock == ClockCorrection(HOUR)
    clock.move(HOUR)
    assert reap(store).clock is None


def test_clock_that_catches_up_between_ticks_ends_the_corrections(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    step_back(store, clock, 100.0)
    found = []
    for _ in range(5):
        clock.move(PERIOD)
        found.append(reap(store).clock)
    assert found == [ClockCorrection(90.0), ClockCorrection(80.0), ClockCorrection(70.0), None, None]


@on_postgres
def test_transaction_that_was_open_during_the_step_leaves_no_job_behind(
    store: SqlStore, clock: Clock, direct_url: str, open_again: Callable[[], SqlStore]
) -> None:
    engine = create_engine(direct_url)
    try:
        with engine.begin() as connection:
            enqueued = store.enqueue(NewJob(task="add"), connection)
            step_back(store, clock)
        clock.move(PERIOD)
        reap(open_again())
        assert claim_ids(store) == [enqueued.id]
    finally:
        engine.dispose()


def test_clock_that_is_right_is_never_corrected(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.set_source("shop", rate_limit_per_minute=60)
    for outcome in (BROKEN, Snoozed(30.0, "later"), Released(), KILLED):
        settle_well(store, start(store, source="shop"), outcome)
        clock.move(2)
    start(store)
    enqueue(store, delay=600)
    for _ in range(5):
        before = by_hand.everything()
        assert reap(store).clock is None
        after = by_hand.everything()
        assert {name for name in after if after[name] != before[name]} <= {"holdfast_duties"}
        clock.move(5)


# A clock that jumps ahead


def test_clock_that_jumps_ahead_and_back_costs_no_live_worker_its_lease(store: SqlStore, clock: Clock) -> None:
    live = start(store)
    for jump in (HOUR, -HOUR, 600, -600, 24 * HOUR, -24 * HOUR):
        reap(store)
        clock.move(jump)
        assert reap_for(store, clock, 20) == []
        [beaten] = store.heartbeat([beat(live)])
        assert beaten.status is Status.APPLIED
    assert settle(store, live, Succeeded()).status is Status.APPLIED
    job = store.job(live.job_id)
    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)
