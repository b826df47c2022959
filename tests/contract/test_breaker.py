"""How jobs end moves the breaker of their source, in the transaction that ends them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.domain.answers import Status
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Cancelled, Failed, JobError, Outcome, Released, Snoozed, Succeeded
from holdfast.domain.sources import Breaker
from holdfast.stores.database import CursorTransaction
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs.breaker import settle_sources
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import (
    BROKEN,
    EXACT,
    HOPELESS,
    KILLED,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    lose_lease,
    postgres_later,
    report,
    settle,
    settle_well,
    start,
)

DONE = Succeeded()


def fail(store: SqlStore, times: int = 1, outcome: Outcome = HOPELESS, source: str = "shop") -> None:
    for _ in range(times):
        settle_well(store, start(store, source=source), outcome)


def opened(store: SqlStore, **limits: Any) -> None:
    """A source whose breaker has just opened."""
    store.set_source("shop", **limits)
    fail(store, store.source("shop").breaker_threshold)
    assert store.source("shop").breaker is Breaker.OPEN


def half_open(store: SqlStore, clock: Clock, **limits: Any) -> None:
    opened(store, **limits)
    clock.move(store.source("shop").breaker_pause_seconds)
    assert store.source("shop").breaker is Breaker.HALF_OPEN


def happened(store: SqlStore) -> list[str]:
    """The oldest first."""
    return [event.event for event in reversed(store.source_events("shop").items)]


def test_a_breaker_opens_on_exactly_the_fifth_failure(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    fail(store, 4)
    assert (store.source("shop").breaker, store.source("shop").failure_streak) == (Breaker.CLOSED, 4)
    enqueue_many(store, 3, source="shop")
    settle_well(store, store.claim("ann", 1)[0], BROKEN)
    source = store.source("shop")
    assert (source.breaker, source.failure_streak, source.paused_by) == (Breaker.OPEN, 5, "breaker")
    assert source.paused_until == clock.now() + timedelta(seconds=300)
    assert source.last_failure_at == clock.now()
    assert claim_ids(store) == []
    assert happened(store) == ["limits_changed", "breaker_opened"]


def test_a_source_that_somebody_typed_in_a_moment_ago_counts_at_once(store: SqlStore, by_hand: ByHand) -> None:
    jobs = [
        start(store, source="shop") for _ in range(5)
    ]  # which has looked for limits, and remembers that there is none
    by_hand("INSERT INTO holdfast_sources (name) VALUES ('shop')")
    store.settle([report(job, HOPELESS) for job in jobs])
    assert store.source("shop").breaker is Breaker.OPEN


def test_only_failures_in_a_row_open_it(store: SqlStore) -> None:
    store.set_source("shop")
    for _ in range(3):
        fail(store, 4)
        fail(store, 1, DONE)
    assert (store.source("shop").failure_streak, store.source("shop").breaker) == (0, Breaker.CLOSED)
    assert happened(store) == ["limits_changed"]


def test_the_event_says_which_failure_opened_it(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=1, breaker_pause_seconds="10s")
    clock.move(1)
    claimed = start(store, source="shop")
    settle_well(store, claimed, BROKEN)
    event = store.source_events("shop").items[0]
    assert (event.event, event.at) == ("breaker_opened", clock.now())
    assert event.detail is not None
    until = (clock.now() + timedelta(seconds=10)).isoformat().replace("+00:00", "Z")
    assert event.detail == {"streak": 1, "code": "boom", "job_id": claimed.job_id, "paused_until": until}


def test_after_the_pause_exactly_one_probe_is_let_in_and_its_success_closes_it(store: SqlStore, clock: Clock) -> None:
    half_open(store, clock)
    ids = enqueue_many(store, 5, source="shop")
    [probe] = store.claim("ann", 10)
    assert store.claim("bob", 10) == []
    assert store.claim_job("bob", ids[3]) is None
    settle_well(store, probe, DONE)
    source = store.source("shop")
    assert (source.breaker, source.failure_streak, source.paused_until, source.paused_by) == (
        Breaker.CLOSED,
        0,
        None,
        None,
    )
    assert claim_ids(store) == ids[1:]
    assert happened(store) == ["limits_changed", "breaker_opened", "breaker_closed"]


def test_a_probe_that_fails_opens_it_again(store: SqlStore, clock: Clock) -> None:
    half_open(store, clock)
    clock.move(7)
    fail(store)
    source = store.source("shop")
    assert (source.breaker, source.failure_streak) == (Breaker.OPEN, 6)
    assert source.paused_until == clock.now() + timedelta(seconds=300)
    event = store.source_events("shop").items[0]
    assert event.detail is not None
    assert event.detail["probe"] is True


def test_a_prober_whose_lease_is_lost_frees_the_probe_and_moves_nothing(store: SqlStore, clock: Clock) -> None:
    half_open(store, clock)
    enqueue_many(store, 2, source="shop", lease_seconds=30)
    prober = claim(store)
    assert claim_ids(store) == []
    lose_lease(store, clock, prober)
    assert (store.source("shop").breaker, store.source("shop").failure_streak) == (Breaker.HALF_OPEN, 5)
    settle_well(store, claim(store), DONE)
    assert store.source("shop").breaker is Breaker.CLOSED


def error(code: str, retryable: bool = True) -> Failed:
    return Failed(JobError(code, "it broke", retryable=retryable))


@pytest.mark.parametrize(
    ("limits", "outcome", "counts"),
    [
        ({}, error("Timeout"), True),
        ({}, error("Timeout", retryable=False), True),
        ({"breaker_counts_permanent": False}, error("Timeout"), True),
        ({"breaker_counts_permanent": False}, error("Timeout", retryable=False), False),
        ({"breaker_only": ["Timeout"]}, error("Timeout"), True),
        ({"breaker_only": ["Timeout"]}, error("ValueError"), False),
        ({"breaker_ignores": ["ValueError"]}, error("ValueError"), False),
        ({"breaker_ignores": ["ValueError"]}, error("Timeout"), True),
    ],
)
@postgres_later
def test_which_failures_count_can_be_chosen(
    store: SqlStore, limits: dict[str, Any], outcome: Failed, counts: bool
) -> None:
    store.set_source("shop", breaker_threshold=1, **limits)
    fail(store, 1, outcome)
    source = store.source("shop")
    assert source.breaker is (Breaker.OPEN if counts else Breaker.CLOSED)
    assert (source.last_failure_at is not None) is counts


@pytest.mark.parametrize(
    "outcome", [KILLED, Released(), Snoozed(5), Cancelled()], ids=lambda outcome: type(outcome).__name__
)
@postgres_later
def test_what_says_nothing_about_the_source_moves_nothing(store: SqlStore, outcome: Outcome) -> None:
    store.set_source("shop", breaker_threshold=2)
    fail(store)
    before = store.source("shop")
    settle_well(store, start(store, "other", source="shop"), outcome)
    after = store.source("shop")
    assert (after.failure_streak, after.last_failure_at, after.last_success_at, after.paused_until) == (
        before.failure_streak,
        before.last_failure_at,
        None,
        None,
    )


def test_a_failure_that_is_overruled_by_a_cancel_moves_nothing(store: SqlStore) -> None:
    store.set_source("shop", breaker_threshold=1)
    claimed = start(store, source="shop")
    store.cancel([claimed.job_id])
    settle_well(store, claimed, BROKEN)
    assert store.source("shop").breaker is Breaker.CLOSED


def test_stragglers_are_noted_and_move_nothing(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    early, late = (start(store, source="shop") for _ in range(2))
    opened(store)
    until = store.source("shop").paused_until
    clock.move(10)
    settle_well(store, early, DONE)
    settle_well(store, late, BROKEN)
    source = store.source("shop")
    assert (source.breaker, source.failure_streak, source.paused_until) == (Breaker.OPEN, 5, until)
    assert source.last_success_at == source.last_failure_at == clock.now()
    assert happened(store) == ["limits_changed", "breaker_opened"]


def test_a_batch_is_heard_report_by_report(store: SqlStore) -> None:
    store.set_source("shop")
    store.set_source("bank", breaker_threshold=2)
    jobs = [start(store, source=source) for source in ("shop", "bank") * 6]
    answers = store.settle([report(job, HOPELESS) for job in jobs])
    assert {answer.status for answer in answers} == {Status.APPLIED}
    assert (store.source("shop").failure_streak, store.source("bank").failure_streak) == (5, 2), "then they were open"
    assert happened(store) == ["limits_changed", "breaker_opened"]


def test_a_report_that_is_told_twice_moves_it_once(store: SqlStore) -> None:
    store.set_source("shop")
    claimed = start(store, source="shop")
    settle_well(store, claimed, HOPELESS)
    assert settle(store, claimed, HOPELESS).status is Status.REPLAYED
    assert settle(store, claimed, DONE).status is Status.REFUSED
    assert store.source("shop").failure_streak == 1


def test_a_job_whose_source_has_no_row_leaves_no_trace(store: SqlStore) -> None:
    fail(store, 7)
    assert store.sources() == []
    assert store.source_events().items == ()


@on_postgres
def test_failures_from_many_sides_are_all_counted(
    store: SqlStore, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    # How many get their turn in half a second says something about the machine.
    monkeypatch.setitem(cast(Any, settle_sources).__kwdefaults__, "patience", 60.0)
    store.set_source("shop", breaker_threshold=1000)
    jobs = [start(store, source="shop") for _ in range(40)]
    stores = [store, *(open_again() for _ in range(3))]
    together = threading.Barrier(20)

    def settle_two(place: int) -> None:
        together.wait()
        for job in jobs[place * 2 : place * 2 + 2]:
            settle_well(stores[place % 4], job, HOPELESS)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(settle_two, range(20)))
    assert store.source("shop").failure_streak == 40


@on_postgres
def test_an_outcome_is_recorded_also_while_somebody_holds_the_source(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop")
    claimed = start(store, source="shop")
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_sources FOR UPDATE")
        settle_well(store, claimed, BROKEN)
    assert store.source("shop").failure_streak == 0


def test_ten_snoozes_then_an_error_and_the_delay_is_that_of_a_first_failure(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    job_id = enqueue(store, source="shop", retry=EXACT)
    for _ in range(10):
        settle_well(store, claim_this(store, job_id), Snoozed(30, "429", throttled=True))
        clock.move(30)
    settle_well(store, claim_this(store, job_id), BROKEN)
    job = store.job(job_id)
    assert job.run_after == clock.now() + timedelta(seconds=EXACT.delay(1, 0.5))
    assert (job.failures, job.crashes, job.attempt) == (1, 0, 11)
    assert store.source("shop").failure_streak == 1


def test_a_throttled_job_pauses_its_source_and_is_charged_nothing(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    fail(store)
    job_id = enqueue(store, source="shop")
    others = enqueue_many(store, 3, source="shop")
    claimed = claim_this(store, job_id)
    settle_well(store, claimed, Snoozed(60, "429", throttled=True))
    source = store.source("shop")
    assert (source.paused_until, source.paused_by) == (clock.now() + timedelta(seconds=60), "retry_after")
    assert (source.breaker, source.failure_streak) == (Breaker.CLOSED, 1)
    assert (store.job(job_id).failures, store.job(job_id).attempt) == (0, 1)
    clock.move(59)
    assert claim_ids(store) == []
    clock.move(1)
    assert set(claim_ids(store)) == {job_id, *others}
    event = store.source_events("shop").items[0]
    assert (event.event, (event.detail or {})["seconds"], (event.detail or {})["job_id"]) == ("throttled", 60, job_id)
    assert store.events(job_id)[2].detail == {**(store.events(job_id)[2].detail or {}), "throttled": True}


def test_a_plain_snooze_pauses_nothing(store: SqlStore) -> None:
    store.set_source("shop")
    settle_well(store, start(store, source="shop"), Snoozed(60))
    assert store.source("shop").paused_until is None


def test_retry_after_never_shortens_a_pause(store: SqlStore, clock: Clock) -> None:
    straggler = start(store, source="shop")
    opened(store)
    settle_well(store, straggler, Snoozed(60, throttled=True))
    assert store.source("shop").paused_by == "breaker"
    assert store.source("shop").paused_until == clock.now() + timedelta(seconds=300)


def test_a_calm_source_is_not_written_at_every_success(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    fail(store, 1, DONE)
    first = clock.now()
    clock.move(0.9)
    fail(store, 1, DONE)
    assert store.source("shop").last_success_at == first
    clock.move(0.2)
    fail(store, 1, DONE)
    assert store.source("shop").last_success_at == clock.now()


@on_postgres
def test_a_batch_of_successes_is_one_statement_unless_a_source_has_to_learn_of_it(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run_statement = CursorTransaction.run

    def remember(transaction: CursorTransaction, statement: Any, *rest: Any) -> None:
        asked.append(statement.name)
        run_statement(transaction, statement, *rest)

    def settling(*sources: str | None) -> list[str]:
        jobs: list[Claimed] = [start(store, source=source) for source in sources]
        asked.clear()
        assert all(answer.status is Status.APPLIED for answer in store.settle([report(job, DONE) for job in jobs]))
        return asked

    monkeypatch.setattr(CursorTransaction, "run", remember)
    assert settling(None, "shop") == ["settle.succeed"]
    store.set_source("shop")
    settling("shop")
    assert settling(None, "shop", "nobody") == ["settle.succeed"]
    clock.move(2)
    learning = ["settle.succeed", "settle", "breaker.read", "breaker.lock", "breaker.write"]
    assert settling(None, "shop", "shop") == learning
    assert settling("shop") == ["settle.succeed"]


# In the user's own transaction


@on_postgres
@pytest.mark.parametrize("commits", [True, False])
def test_complete_in_closes_a_half_open_breaker_with_the_user_s_commit(
    store: SqlStore, by_hand: ByHand, clock: Clock, commits: bool
) -> None:
    half_open(store, clock)
    probe = start(store, source="shop")
    with by_hand.engine.connect() as connection:
        assert store.settle_in(connection, report(probe, DONE)).ok
        connection.commit() if commits else connection.rollback()
    assert store.source("shop").breaker is (Breaker.CLOSED if commits else Breaker.HALF_OPEN)
    assert ("breaker_closed" in happened(store)) is commits


@on_postgres
def test_complete_in_leaves_a_calm_source_alone(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop", max_concurrent=5)
    claimed = start(store, source="shop")
    waiting = enqueue(store, source="shop")
    with by_hand.engine.connect() as connection:
        assert store.settle_in(connection, report(claimed, DONE)).ok
        assert claim_ids(store) == [waiting], "the source is not locked until the user's commit"
        connection.commit()
    assert store.source("shop").last_success_at is None
