"""Entering and leaving sources from inside a job: the limits of a claim, tied to the attempt."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput, LeaseLost, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Succeeded
from holdfast.domain.sources import Breaker, End, Entered, Entry, Leaving
from holdfast.maintenance.leftovers import leftovers
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import holds as sql
from holdfast.stores.verbs import holds as verbs
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import (
    HOPELESS,
    beat,
    claim_ids,
    enqueue,
    enqueue_many,
    lose_lease,
    postgres_later,
    settle_well,
    start,
)
from tests.servers.waiting import DEADLINE_SECONDS

IN = Entered(True)


def enter(store: SqlStore, job: Claimed, number: int = 1, source: str = "shop", prepaid: bool = False) -> Entered:
    return store.enter_source(beat(job), Entry(source, number, prepaid))


def leave(store: SqlStore, job: Claimed, number: int = 1, end: End = End.NOTHING, **more: Any) -> None:
    store.leave_source(beat(job), Leaving("shop", number, end, **more))


def half_open(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop")
    by_hand("UPDATE holdfast_sources SET failure_streak = 5 WHERE name = 'shop'")
    assert store.source("shop").breaker is Breaker.HALF_OPEN


def test_a_source_that_nobody_has_spoken_of_admits_at_once_and_keeps_nothing(store: SqlStore, by_hand: ByHand) -> None:
    job = start(store)
    assert enter(store, job) == IN
    leave(store, job, end=End.FAILED, code="Timeout")
    assert by_hand.count("holdfast_source_holds") == by_hand.count("holdfast_sources") == 0


def test_those_inside_count_and_whoever_leaves_makes_room(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=2)
    ann, bob, eve = (start(store) for _ in range(3))
    assert enter(store, ann) == enter(store, bob) == IN
    assert store.source("shop").in_use == 2
    assert enter(store, eve) == Entered(False, 0.25, "concurrency")
    leave(store, ann)
    assert enter(store, eve) == IN


def test_jobs_that_run_under_the_source_and_those_inside_it_count_together(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=2)
    inside = start(store)
    assert enter(store, inside) == IN
    [first, _second] = enqueue_many(store, 2, source="shop")
    assert claim_ids(store) == [first], "one is inside, one was claimed"
    assert enter(store, start(store)) == Entered(False, 0.25, "concurrency")
    assert claim_ids(store) == []


def test_the_job_s_own_source_counts_it_once(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    job = start(store, source="shop")
    assert enter(store, job, 1, prepaid=True) == enter(store, job, 2) == IN
    assert store.source("shop").in_use == 1


@pytest.mark.usefixtures("clock")
def test_asking_twice_enters_once_and_takes_one_token(store: SqlStore) -> None:
    store.set_source("shop", rate="60/m", max_concurrent=5)
    job = start(store)
    assert enter(store, job) == enter(store, job) == IN
    assert (store.source("shop").level, store.source("shop").in_use) == (0.0, 1)
    assert enter(store, job, 2).reason == "rate"


def test_a_rate_says_when_the_next_token_comes(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate="6/m")
    job = start(store)
    assert enter(store, job, 1) == IN
    clock.move(4)
    refused = enter(store, job, 2)
    assert (refused.admitted, refused.reason) == (False, "rate")
    assert refused.retry_in == pytest.approx(6.0)
    clock.move(refused.retry_in)
    assert enter(store, job, 2) == IN


def test_no_window_has_more_entries_than_the_rate_and_the_burst(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate="30/m", burst=3)
    job = start(store, lease_seconds=600)
    clock.move(6)
    entered: list[float] = []
    for step in range(80):
        if enter(store, job, len(entered) + 1).admitted:
            entered.append(step * 0.5)
        clock.move(0.5)
    for begin in entered:
        for length in (1, 5, 20):
            inside = [moment for moment in entered if begin <= moment < begin + length]
            assert len(inside) <= 0.5 * length + 3
    assert len(entered) == 3 + 19, "and none was kept away for nothing"


def test_only_the_first_entry_of_its_own_source_is_paid_for(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", rate="60/m", burst=2)
    clock.move(60)
    job = start(store, source="shop")
    assert store.source("shop").level == 1.0, "what the claim cost"
    assert enter(store, job, 1, prepaid=True) == IN
    assert store.source("shop").level == 1.0
    assert enter(store, job, 2) == IN
    assert store.source("shop").level == 0.0
    assert enter(store, job, 3).reason == "rate"


@pytest.mark.usefixtures("clock")
def test_nobody_is_prepaid_in_another_s_source(store: SqlStore) -> None:
    store.set_source("shop", rate="1/m")
    job = start(store)
    assert enter(store, job, 1, prepaid=True) == IN
    assert enter(store, job, 2, prepaid=True).reason == "rate"


def test_a_closed_source_says_for_how_long(store: SqlStore, clock: Clock) -> None:
    job = start(store)
    store.set_source("shop", enabled=False)
    assert enter(store, job) == Entered(False, 5.0, "disabled")
    store.set_source("shop", enabled=True, paused_for="10m")
    clock.move(60)
    assert enter(store, job) == Entered(False, 540.0, "paused")
    store.set_source("shop", paused_until=None, breaker_threshold=1)
    settle_well(store, start(store, source="shop"), HOPELESS)
    assert enter(store, job) == Entered(False, 300.0, "breaker")


def test_a_prepaid_entry_is_not_asked_again(store: SqlStore) -> None:
    store.set_source("shop")
    job = start(store, source="shop")
    store.set_source("shop", enabled=False, paused_for=60)
    assert enter(store, job, 1, prepaid=True) == IN
    assert enter(store, job, 2).reason == "disabled"


def test_a_half_open_source_lets_one_in_and_its_success_closes_it(store: SqlStore, by_hand: ByHand) -> None:
    half_open(store, by_hand)
    probe, other = start(store), start(store)
    assert enter(store, probe) == IN
    assert enter(store, other) == Entered(False, 0.25, "breaker")
    waiting = enqueue(store, source="shop")
    assert claim_ids(store) == [], "the probe is taken"
    leave(store, probe, end=End.SUCCEEDED)
    assert store.source("shop").breaker is Breaker.CLOSED
    assert store.source_events("shop").items[0].event == "breaker_closed"
    assert enter(store, other) == IN
    assert claim_ids(store) == [waiting]


def test_the_job_that_probes_may_enter_its_own_source_again(store: SqlStore, by_hand: ByHand) -> None:
    half_open(store, by_hand)
    probe = start(store, source="shop")
    assert enter(store, probe, 1, prepaid=True) == enter(store, probe, 2) == IN


def test_a_failure_inside_counts(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", breaker_threshold=2, breaker_ignores=["NotFound"])
    job = start(store)
    for number, code in enumerate(["Timeout", "NotFound", "Timeout"]):
        assert enter(store, job, number) == IN
        leave(store, job, number, End.FAILED, code=code)
    source = store.source("shop")
    assert (source.breaker, source.failure_streak, source.last_failure_at) == (Breaker.OPEN, 2, clock.now())
    detail = store.source_events("shop").items[0].detail
    assert detail is not None
    assert (detail["code"], detail["job_id"]) == ("Timeout", job.job_id)


def test_of_its_own_source_a_job_tells_by_its_outcome(store: SqlStore) -> None:
    store.set_source("shop", breaker_threshold=1)
    job = start(store, source="shop")
    for number, end in enumerate([End.SUCCEEDED, End.FAILED, End.NOTHING]):
        assert enter(store, job, number) == IN
        leave(store, job, number, end, code="Timeout")
    source = store.source("shop")
    assert (source.breaker, source.last_success_at, source.last_failure_at) == (Breaker.CLOSED, None, None)


@pytest.mark.parametrize("own", ["shop", None])
def test_a_source_that_throttles_is_paused_whosever_it_is(store: SqlStore, clock: Clock, own: str | None) -> None:
    store.set_source("shop")
    job = start(store, source=own)
    assert enter(store, job) == IN
    leave(store, job, 1, End.THROTTLED, retry_after=120)
    source = store.source("shop")
    assert (source.paused_until, source.paused_by) == (clock.now() + timedelta(seconds=120), "retry_after")
    assert source.failure_streak == 0
    assert store.source_events("shop").items[0].event == "throttled"


def test_leaving_twice_changes_nothing_the_second_time(store: SqlStore) -> None:
    store.set_source("shop")
    job = start(store)
    assert enter(store, job) == IN
    leave(store, job, 1, End.FAILED, code="Timeout")
    leave(store, job, 1, End.FAILED, code="Timeout")
    leave(store, job, 7, End.FAILED, code="Timeout")
    assert store.source("shop").failure_streak == 1


def test_a_dead_holder_s_place_is_free_when_its_attempt_is_over(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop", max_concurrent=1)
    dead, other = start(store, lease_seconds=30), start(store, lease_seconds=600)
    assert enter(store, dead) == IN
    clock.move(31)
    assert enter(store, other).reason == "concurrency", "expired or not, it still runs"
    clock.move(-31)
    lose_lease(store, clock, dead)
    assert store.source("shop").in_use == 0
    assert enter(store, other) == IN


def test_the_next_attempt_has_no_part_in_the_holds_of_the_last(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.set_source("shop", max_concurrent=1)
    dead = start(store, lease_seconds=30)
    assert enter(store, dead) == IN
    lose_lease(store, clock, dead)
    again = store.claim_job("bob", dead.job_id)
    assert again is not None
    assert store.source("shop").in_use == 0
    assert enter(store, again) == IN
    assert by_hand("SELECT attempt FROM holdfast_source_holds") == [(2,)], "what was stale is gone"


def test_a_lost_lease_enters_and_leaves_nothing_and_is_on_record(store: SqlStore, clock: Clock) -> None:
    store.set_source("shop")
    job = start(store, lease_seconds=30)
    assert enter(store, job) == IN
    lose_lease(store, clock, job)
    with pytest.raises(LeaseLost, match="lease_lost"):
        enter(store, job, 2)
    with pytest.raises(LeaseLost, match="shop"):
        leave(store, job, 1, End.FAILED, code="Timeout")
    [refusal] = store.refusals(job.job_id)
    assert (refusal.verb, refusal.reason, refusal.count, refusal.worker) == ("source", "lease_lost", 2, "ann")
    assert store.source("shop").failure_streak == 0


def test_a_job_that_has_ended_and_a_stranger_get_nothing(store: SqlStore) -> None:
    store.set_source("shop")
    job = start(store)
    with pytest.raises(LeaseLost, match="unknown_lease"):
        enter(store, replace(job, lease_token="guessed"))
    settle_well(store, job, Succeeded())
    with pytest.raises(LeaseLost):
        enter(store, job)


@pytest.mark.parametrize(
    ("entry", "field"), [(Entry("", 1), "source"), (Entry("shop", -1), "number"), (Entry("a\nb", 1), "source")]
)
def test_a_wrong_entry_names_the_field(store: SqlStore, entry: Entry, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}:"):
        store.enter_source(beat(start(store)), entry)


def test_a_wrong_leaving_names_the_field_and_stays(store: SqlStore) -> None:
    store.set_source("shop")
    job = start(store)
    assert enter(store, job) == IN
    with pytest.raises(InvalidInput, match=r"^retry_after:"):
        leave(store, job, 1, End.THROTTLED, retry_after=float("nan"))
    with pytest.raises(InvalidInput, match=r"^end:"):
        leave(store, job, 1, "exploded")  # type: ignore[arg-type]
    assert store.source("shop").in_use == 1


@on_postgres
def test_a_source_that_somebody_has_locked_is_busy_at_once(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=1)
    job = start(store)
    pauses: list[float] = []
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_sources FOR UPDATE")
        monkeypatch.setattr(verbs, "time", SimpleNamespace(sleep=pauses.append))
        assert enter(store, job) == Entered(False, 0.05, "busy")
    assert pauses == [0.002], "it is asked for once more, and no one waits for it"
    assert enter(store, job) == IN


def test_a_source_that_is_deleted_while_somebody_enters_admits_at_once_and_keeps_nothing(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_source("shop", max_concurrent=0)
    job = start(store)
    reading, reads = store.database.reading, count()

    def delete_then_read() -> Any:
        if next(reads) == 1:
            by_hand("DELETE FROM holdfast_sources")
        return reading()

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store.database, "reading", delete_then_read)
        assert enter(store, job) == IN
    assert next(reads) == 2, "it was there at the first read, and gone at the second"
    assert by_hand.count("holdfast_source_holds") == 0


@postgres_later
def test_a_lease_that_is_held_again_a_moment_later_is_asked_about_once_more(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(store)
    settle_well(store, job, Succeeded())
    with pytest.raises(LeaseLost, match="source shop is only for who holds one"):
        enter(store, job)
    monkeypatch.setattr(verbs, "check_lease", lambda *_given: None)
    with pytest.raises(StoreUnavailable, match=f"^source shop: the lease of job {job.job_id} could not be read; ask"):
        enter(store, job)


@on_postgres
def test_what_flows_in_while_somebody_enters_is_not_lost(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.set_source("shop", rate="60/m", burst=2)
    by_hand("UPDATE holdfast_sources SET bucket_level = 1")
    with store.database.transaction() as transaction:
        assert transaction.rows(sql.LOCK, {"source": "shop"})
        clock.move(0.5)
        transaction.run(sql.SPEND, {"source": "shop"})
    assert store.source("shop").level == pytest.approx(0.5)


def test_a_question_that_arrives_after_the_leave_enters_nothing(store: SqlStore) -> None:
    store.set_source("shop", max_concurrent=1)
    job = start(store)
    assert enter(store, job) == IN
    leave(store, job)
    with pytest.raises(InvalidInput, match=r"^number: entry 1 "):
        enter(store, job)
    leave(store, job, 2, End.FAILED, code="Timeout")  # overtook what it belongs to
    with pytest.raises(InvalidInput, match=r"^number: entry 2 "):
        enter(store, job, 2)
    assert (store.source("shop").in_use, store.source("shop").failure_streak) == (0, 0)
    assert enter(store, job, 3) == IN


@pytest.mark.usefixtures("clock")
def test_what_is_prepaid_is_prepaid_once(store: SqlStore) -> None:
    store.set_source("shop", rate="1/m")
    job = start(store, source="shop")
    assert enter(store, job, 1, prepaid=True) == IN
    assert enter(store, job, 2, prepaid=True).reason == "rate"
    leave(store, job, 1)
    assert enter(store, job, 2, prepaid=True).reason == "rate"


@pytest.mark.usefixtures("clock")
def test_of_many_entries_the_last_ones_stay_and_the_prepaid_one(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "THINNED_OUT_EVERY", 3)
    store.set_source("shop", rate="60/m", burst=10)
    by_hand("UPDATE holdfast_sources SET bucket_level = 10")
    store.set_source("bank")
    job = start(store, source="shop")
    for number in range(1, 10):
        assert enter(store, job, number, "bank" if number % 2 else "shop", prepaid=number == 2) == IN
        if number != 4:
            store.leave_source(beat(job), Leaving("bank" if number % 2 else "shop", number))
    numbers = [number for [number] in by_hand("SELECT number FROM holdfast_source_holds ORDER BY number")]
    assert numbers == [2, 4, 6, 7, 8, 9]
    before = store.source("shop").level
    assert before is not None
    assert enter(store, job, 10, prepaid=True) == IN
    assert store.source("shop").level == before - 1


@pytest.mark.parametrize("own", ["shop", None])
def test_who_was_let_in_before_the_breaker_opened_is_no_probe(store: SqlStore, clock: Clock, own: str | None) -> None:
    store.set_source("shop", breaker_threshold=1, breaker_pause_seconds=60)
    hanging = start(store, source=own, lease_seconds=600)
    assert enter(store, hanging) == IN
    clock.move(1)
    settle_well(store, start(store, source="shop"), HOPELESS)
    clock.move(60)
    assert store.source("shop").breaker is Breaker.HALF_OPEN
    probe, other = start(store), start(store)
    assert enter(store, probe) == IN
    assert enter(store, other) == enter(store, hanging, 2) == Entered(False, 0.25, "breaker")
    leave(store, probe)
    assert enter(store, hanging, 2) == IN
    assert enter(store, other) == Entered(False, 0.25, "breaker"), "it probes, like anybody else"


def test_a_straggler_that_enters_its_own_source_is_the_probe(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.set_source("shop")
    straggler = start(store, source="shop")
    store.set_source("shop", paused_until=clock.now() + timedelta(seconds=30))
    by_hand("UPDATE holdfast_sources SET failure_streak = 5")
    clock.move(31)
    enqueue(store, source="shop")
    assert enter(store, straggler) == IN
    assert claim_ids(store) == []
    leave(store, straggler)
    assert len(claim_ids(store)) == 1


def test_fifty_at_once_are_never_more_than_three_inside(store: SqlStore, open_again: Callable[[], SqlStore]) -> None:
    store.set_source("shop", max_concurrent=3)
    stores = [store, *(open_again() for _ in range(4))]
    job = start(store, lease_seconds=600)
    guard, inside, most = threading.Lock(), 0, 0
    together, full = threading.Barrier(50), threading.Event()

    def visit(number: int) -> None:
        nonlocal inside, most
        mine = stores[number % 5]
        together.wait()
        while not (answer := enter(mine, job, number)).admitted:
            time.sleep(min(answer.retry_in, 0.01))
        with guard:
            inside += 1
            most = max(most, inside)
            if inside == 3:
                full.set()
        assert full.wait(DEADLINE_SECONDS), "the first to come in stay until the house is full"
        with guard:
            inside -= 1
        leave(mine, job, number, End.SUCCEEDED)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(visit, range(50)))
    assert most == 3
    assert store.source("shop").in_use == 0


def test_stale_holds_are_forgotten_and_live_ones_stay(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop")
    jobs = [start(store) for _ in range(5)]
    for job in jobs:
        assert enter(store, job, 1) == enter(store, job, 2) == IN
    for job in jobs[1:]:
        settle_well(store, job, Succeeded())
    assert by_hand.count("holdfast_source_holds") == 10
    assert store.forget_holds(3) == 3
    with pytest.raises(InvalidInput, match="limit"):
        store.forget_holds(0)
    assert sum(leftovers(lambda: store, at_once=2).steps()) == 5
    assert by_hand.count("holdfast_source_holds") == store.source("shop").in_use == 2


@on_postgres
def test_a_batch_is_a_batch_however_the_planner_goes_about_it(store: SqlStore, by_hand: ByHand) -> None:
    """A choice inside `IN` may be made anew for each row of a nested loop: then all of them would go."""
    store.set_source("shop")
    jobs = [start(store) for _ in range(8)]
    assert [enter(store, job) for job in jobs] == [IN] * 8
    for job in jobs:
        settle_well(store, job, Succeeded())
    with by_hand.engine.begin() as session:
        for way in ("hashjoin", "hashagg", "mergejoin", "sort", "material", "bitmapscan", "indexscan"):
            run(session, f"SET LOCAL enable_{way} = off")
        assert len(run(session, sql.FORGET.sql("postgresql"), limit=3)) == 3
    assert by_hand.count("holdfast_source_holds") == 5
