"""Limits of sources and queues hold before the lease: a job that is not admitted burns no attempt and blocks nobody."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Snoozed, Succeeded
from holdfast.domain.sources import Entry
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import (
    BROKEN,
    KILLED,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    lose_lease,
    settle_well,
    start,
)


def finish_all(store: SqlStore, claims: list[Claimed]) -> None:
    for claimed in claims:
        settle_well(store, claimed, Succeeded())


def test_a_source_without_a_row_is_not_governed(store: SqlStore) -> None:
    store.set_source("bank", max_concurrent=1)
    ids = enqueue_many(store, 5, source="shop")
    assert claim_ids(store) == ids


@pytest.mark.parametrize(
    "closed",
    [{"enabled": False}, {"max_concurrent": 0}, {"paused_until": "tomorrow"}],
    ids=["switched off", "no room at all", "paused"],
)
def test_a_closed_source_is_left_alone_and_blocks_nobody(store: SqlStore, clock: Clock, closed: dict[str, Any]) -> None:
    if "paused_until" in closed:
        closed = {"paused_until": clock.now() + timedelta(days=1)}
    store.set_source("shop", **closed)
    waiting = enqueue_many(store, 30, source="shop", priority=100)
    other = enqueue(store, source="bank")
    plain = enqueue(store)
    assert claim_ids(store) == [other, plain]
    assert store.claim_job("ann", waiting[0]) is None
    job = store.job(waiting[0])
    assert (job.state, job.attempt, job.failures, job.crashes) == (State.PENDING, 0, 0, 0)
    assert history(store, waiting[0]) == ["enqueued"]
    store.set_source("shop", enabled=True, max_concurrent=None, paused_until=None)
    assert claim_ids(store) == waiting


def test_a_pause_ends_by_itself(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", paused_until=clock.now() + timedelta(seconds=60))
    job_id = enqueue(store, source="shop")
    clock.move(59.999)
    assert claim_ids(store) == []
    clock.move(0.001)
    assert claim_ids(store) == [job_id]


def test_max_concurrent_counts_what_runs(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=2)
    ids = enqueue_many(store, 5, source="shop")
    first, second = store.claim("ann", 10)
    assert [first.job_id, second.job_id] == ids[:2]
    assert store.claim("bob", 10) == []
    settle_well(store, first, Succeeded())
    assert claim_ids(store) == ids[2:3]
    store.set_source("shop", max_concurrent=3)
    assert claim_ids(store) == ids[3:4]
    store.set_source("shop", max_concurrent=1)
    assert claim_ids(store) == []


@pytest.mark.parametrize(
    "outcome", [Succeeded(), BROKEN, KILLED, Released(), Snoozed(5)], ids=lambda outcome: type(outcome).__name__
)
def test_every_ending_gives_the_place_back(store: SqlStore, outcome: Any) -> None:
    store.set_source("shop", max_concurrent=1)
    enqueue_many(store, 2, source="shop")
    settle_well(store, claim(store), outcome)
    assert len(claim_ids(store)) == 1


def test_a_dead_worker_s_place_is_in_use_until_it_is_reaped(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", max_concurrent=1)
    enqueue_many(store, 2, source="shop")
    claimed = claim(store)
    clock.move(61)
    assert claim_ids(store) == [], "expired or not, it still runs"
    clock.move(-61)
    lose_lease(store, clock, claimed)
    assert len(claim_ids(store)) == 1


def test_a_limit_is_shared_by_all_tasks_priorities_and_queues_of_its_source(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=2)
    for number in range(12):
        enqueue(store, f"task-{number % 3}", queue=f"queue-{number % 2}", priority=number, source="shop")
    plain = {enqueue(store, queue="queue-1") for _ in range(3)}
    claims = store.claim("ann", 100, queues=["queue-0", "queue-1"])
    assert len([claimed for claimed in claims if claimed.source == "shop"]) == 2
    assert plain == {claimed.job_id for claimed in claims if claimed.source is None}
    assert [claimed.queue for claimed in claims[:2]] == ["queue-0", "queue-0"]
    assert store.claim("bob", 100, queues=["queue-1"]) == []


def test_each_source_has_a_limit_of_its_own(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    store.set_source("bank", max_concurrent=2)
    for source in ("shop", "bank", "free") * 4:
        enqueue(store, source=source)
    sources = [claimed.source for claimed in store.claim("ann", 100)]
    assert {name: sources.count(name) for name in ("shop", "bank", "free")} == {"shop": 1, "bank": 2, "free": 4}


def test_priority_is_strict_within_a_source(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    calm, urgent = enqueue(store, source="shop"), enqueue(store, source="shop", priority=5)
    assert claim_ids(store) == [urgent]
    assert store.job(calm).state is State.PENDING


def test_claim_job_keeps_to_the_limit(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    first, second = enqueue_many(store, 2, source="shop")
    claimed = claim_this(store, second)
    assert store.claim_job("bob", first) is None
    assert claim_ids(store) == []
    settle_well(store, claimed, Succeeded())
    assert store.claim_job("bob", first) is not None


# The token bucket


def test_a_rate_is_kept_over_time(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60)
    enqueue_many(store, 10, source="shop")
    assert len(claim_ids(store)) == 1
    assert claim_ids(store) == []
    clock.move(0.9)
    assert claim_ids(store) == []
    clock.move(0.1)
    assert len(claim_ids(store)) == 1, "one a second, to the millisecond"
    clock.move(100)
    assert len(claim_ids(store)) == 1, "what was not used does not pile up beyond the burst"


def test_the_last_moment_of_a_second_is_not_the_next_second(store: SqlStore, clock: Clock) -> None:
    """SQLite rounds 59.9997 up."""
    store.set_source("shop", rate_limit_per_minute=60)
    ids = enqueue_many(store, 3, source="shop")
    clock.move(1 - clock.now().microsecond / 1_000_000)
    assert claim_ids(store) == ids[:1]
    clock.move(0.9997)
    assert claim_ids(store) == []
    assert refused_inside(store) == "rate"
    clock.move(0.0003)
    assert claim_ids(store) == ids[1:2]
    clock.move(1.9998)
    assert claim_ids(store) == ids[2:]
    enqueue(store, source="shop")
    clock.move(0.9999)
    assert claim_ids(store) == []
    clock.move(0.0001)
    assert len(claim_ids(store)) == 1, "nor the other way round"


def refused_inside(store: SqlStore) -> str | None:
    """What somebody is told who wants to enter the source from inside a job."""
    inside = start(store, queue="elsewhere")
    told = store.enter_source(Beat(inside.job_id, inside.attempt, inside.lease_token, "ann"), Entry("shop", 1))
    return told.reason


def test_no_sliding_minute_exceeds_the_rate(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=6)
    enqueue_many(store, 40, source="shop")
    taken = []
    for second in range(0, 120, 2):
        taken += [second] * len(claim_ids(store))
        clock.move(2)
    for first in range(60):
        assert len([second for second in taken if first <= second < first + 60]) <= 6
    assert len(taken) == 12


def test_a_burst_may_be_spent_at_once(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60, burst=5)
    enqueue_many(store, 20, source="shop")
    clock.move(60)
    assert len(claim_ids(store)) == 5
    clock.move(2)
    assert len(claim_ids(store)) == 2


def test_a_rate_is_shared_by_all_its_lanes_and_by_claim_job(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60, burst=2)
    ids = [enqueue(store, f"task-{n % 4}", queue=f"queue-{n % 2}", priority=n % 3, source="shop") for n in range(12)]
    clock.move(60)
    assert store.claim_job("ann", ids[0]) is not None
    assert len(claim_ids(store)) == 1
    assert store.claim_job("ann", ids[1]) is None


def test_a_job_that_is_not_claimed_costs_no_token(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=1)
    later = enqueue(store, source="shop", delay=10)
    store.pause_queue("resting")
    resting = enqueue(store, source="shop", queue="resting")
    for _ in range(3):
        assert claim_ids(store) == []
        assert store.claim_job("ann", later) is None
        assert store.claim_job("ann", resting) is None
    clock.move(10)
    assert claim_ids(store) == [later]


def test_a_rate_and_a_number_hold_together(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate_limit_per_minute=60, burst=10, max_concurrent=3)
    enqueue_many(store, 20, source="shop")
    clock.move(60)
    claims = store.claim("ann", 100)
    assert len(claims) == 3
    finish_all(store, claims)
    assert len(claim_ids(store)) == 3


def test_a_limit_of_rate_can_be_lifted(store: SqlStore) -> None:
    store.set_source("shop", rate_limit_per_minute=1)
    ids = enqueue_many(store, 5, source="shop")
    assert claim_ids(store) == ids[:1]
    store.set_source("shop", rate_limit_per_minute=None)
    assert claim_ids(store) == ids[1:]


# The breaker


def enter(store: SqlStore, claimed: Claimed) -> None:
    lease = Beat(claimed.job_id, claimed.attempt, claimed.lease_token, "ann")
    assert store.enter_source(lease, Entry("shop", 1)).admitted


def break_source(store: SqlStore, by_hand: ByHand, clock: Clock, pause: float) -> None:
    store.set_source("shop", paused_until=clock.now() + timedelta(seconds=pause))
    by_hand("UPDATE holdfast_sources SET failure_streak = 5 WHERE name = 'shop'")


def test_an_open_breaker_lets_nothing_in(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    break_source(store, by_hand, clock, pause=300)
    enqueue_many(store, 3, source="shop")
    clock.move(299)
    assert claim_ids(store) == []


def test_a_half_open_breaker_lets_in_exactly_one_probe(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    break_source(store, by_hand, clock, pause=300)
    ids = enqueue_many(store, 5, source="shop", lease_seconds=30)
    clock.move(301)
    assert claim_ids(store, 100) == ids[:1]
    assert claim_ids(store, 100) == []
    assert store.claim_job("bob", ids[2]) is None
    by_hand("UPDATE holdfast_sources SET failure_streak = 0")
    assert claim_ids(store, 100) == ids[1:]


@pytest.mark.parametrize("inside", [False, True], ids=["a job of the source", "a job inside it"])
def test_a_straggler_from_before_the_pause_is_no_probe(
    store: SqlStore, by_hand: ByHand, clock: Clock, inside: bool
) -> None:
    """It may hang for good; the source must not stay closed for as long."""
    store.set_source("shop", max_concurrent=3)
    hung = start(store, source=None if inside else "shop")
    if inside:
        enter(store, hung)
    break_source(store, by_hand, clock, pause=300)
    ids = enqueue_many(store, 5, source="shop")
    clock.move(300)
    assert store.claim_job("bob", ids[4]) is not None, "the very moment that the pause is over"
    assert claim_ids(store) == []
    assert store.claim_job("bob", ids[0]) is None
    by_hand("UPDATE holdfast_sources SET failure_streak = 0")
    assert claim_ids(store) == ids[:1], "but it is one of the three that may run"


@pytest.mark.parametrize("inside", [False, True], ids=["a job of the source", "a job inside it"])
def test_a_probe_is_what_was_let_in_since_the_pause(
    store: SqlStore, by_hand: ByHand, clock: Clock, inside: bool
) -> None:
    break_source(store, by_hand, clock, pause=300)
    other = start(store)
    enqueue_many(store, 3, source="shop")
    clock.move(300)
    if inside:
        enter(store, other)
    else:
        assert len(claim_ids(store)) == 1
    assert claim_ids(store) == []


def test_without_a_pause_everything_in_use_is_a_probe(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    store.set_source("shop")
    start(store, source="shop")
    by_hand("UPDATE holdfast_sources SET failure_streak = 5")
    clock.move(1)
    enqueue(store, source="shop")
    assert claim_ids(store) == []


def test_the_death_of_a_prober_frees_the_probe(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    break_source(store, by_hand, clock, pause=300)
    enqueue_many(store, 2, source="shop", lease_seconds=30)
    clock.move(301)
    prober = claim(store)
    assert claim_ids(store) == []
    lose_lease(store, clock, prober)
    assert len(claim_ids(store)) == 1


# Queues


def test_a_queue_runs_at_most_so_many(store: SqlStore) -> None:
    store.limit_queue("narrow", 2)
    ids = enqueue_many(store, 4, queue="narrow")
    claims = store.claim("ann", 10)
    assert [claimed.job_id for claimed in claims] == ids[:2]
    assert claim_ids(store, queues=["narrow"]) == []
    assert store.claim_job("ann", ids[3]) is None
    settle_well(store, claims[1], Succeeded())
    assert claim_ids(store, queues=["narrow"]) == ids[2:3]
    store.limit_queue("narrow", None)
    assert claim_ids(store) == ids[3:]


def test_a_queue_with_a_limit_of_nothing_runs_nothing(store: SqlStore) -> None:
    store.limit_queue("shut", 0)
    job_id = enqueue(store, queue="shut")
    assert claim_ids(store) == claim_ids(store, queues=["shut"]) == []
    assert store.claim_job("ann", job_id) is None


def test_a_full_queue_does_not_hold_up_the_next(store: SqlStore) -> None:
    """However long its backlog: what it may not have goes to the queues behind it."""
    store.limit_queue("narrow", 1)
    narrow = enqueue_many(store, 500, queue="narrow")
    wide = enqueue_many(store, 20, queue="wide")
    assert claim_ids(store, 10, queues=["narrow", "wide"]) == [narrow[0], *wide[:9]]
    assert claim_ids(store, 10, queues=["narrow", "wide"]) == wide[9:19]


def test_a_full_source_does_not_hold_up_the_others(store: SqlStore) -> None:
    """However many tasks it has waiting: what it may not have goes to those behind it."""
    store.set_source("shop", max_concurrent=1)
    jobs = [enqueue(store, f"task-{number:03}", source="shop", priority=5) for number in range(120)]
    plain = enqueue_many(store, 20)
    assert claim_ids(store, 10) == [jobs[0], *plain[:9]]


def test_limits_of_source_and_queue_hold_together(store: SqlStore) -> None:
    store.limit_queue("narrow", 3)
    store.set_source("shop", max_concurrent=2)
    shop = enqueue_many(store, 5, queue="narrow", source="shop")
    plain = enqueue_many(store, 5, queue="narrow")
    assert claim_ids(store, 10) == [*shop[:2], plain[0]]


def test_a_paused_queue_takes_nothing_from_its_source(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    store.pause_queue("resting")
    enqueue_many(store, 3, queue="resting", source="shop", priority=100)
    open_job = enqueue(store, queue="open", source="shop")
    assert claim_ids(store) == [open_job]


def test_limits_are_seen_by_a_store_that_did_not_set_them(store: SqlStore, open_again: Any) -> None:
    other: SqlStore = open_again()
    assert other.claim("bob", 1) == []
    store.set_source("shop", max_concurrent=1)
    store.limit_queue("narrow", 1)
    enqueue_many(store, 3, source="shop")
    enqueue_many(store, 3, queue="narrow")
    assert len(store.claim("ann", 10)) + len(other.claim("bob", 10)) == 2, "remembered or not, no limit is broken"


# The record


def test_every_change_of_a_limit_is_on_the_record(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    store.set_source("shop", max_concurrent=2, rate_limit_per_minute=30)
    clock.move(1)
    paused = clock.now()
    store.set_source("shop", enabled=False, paused_until=paused)
    clock.move(1)
    view = store.set_source("shop", burst=3)
    assert (view.name, view.enabled, view.max_concurrent, view.rate_limit_per_minute, view.burst) == (
        "shop",
        False,
        2,
        30.0,
        3,
    )
    assert view.paused_until == paused
    assert store.sources() == [view]
    rows = by_hand("SELECT source, event, CAST(detail AS text) FROM holdfast_source_events ORDER BY at")
    assert [(source, event) for source, event, _ in rows] == [("shop", "limits_changed")] * 3
    assert '"max_concurrent":2' in rows[0][2]
    assert paused.isoformat().replace("+00:00", "Z") in rows[1][2]
    assert '"burst":3' in rows[2][2]


def test_a_source_may_be_created_without_limits(store: SqlStore) -> None:
    view = store.set_source("shop")
    assert (view.enabled, view.max_concurrent, view.rate_limit_per_minute, view.burst) == (True, None, None, 1)
    ids = enqueue_many(store, 5, source="shop")
    assert claim_ids(store) == ids
