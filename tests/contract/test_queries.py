"""What people look at: pages that neither skip nor repeat, histories, attempts and queues."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.errors import NotFound
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released, Snoozed, Succeeded, Usage
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import (
    BROKEN,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    job_in,
    lose_lease,
    report,
    settle_well,
    start,
)

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


# Pages


def test_pages_hold_all_jobs_once_newest_first(store: SqlStore) -> None:
    ids = enqueue_many(store, 53)
    seen: list[str] = []
    sizes = []
    after = None
    while True:
        page = store.jobs(limit=10, after=after)
        seen += [job.id for job in page.items]
        sizes.append(len(page.items))
        after = page.after
        if after is None:
            break
    assert seen == list(reversed(ids))
    assert sizes == [10, 10, 10, 10, 10, 3]


def test_a_last_page_that_is_full_has_no_next(store: SqlStore) -> None:
    enqueue_many(store, 20)
    page = store.jobs(limit=10, after=store.jobs(limit=10).after)
    assert (len(page.items), page.after) == (10, None)


def test_an_empty_store_has_one_empty_page(store: SqlStore) -> None:
    page = store.jobs()
    assert (page.items, page.after) == ((), None)


def test_pages_are_stable_while_jobs_arrive_and_leave(store: SqlStore, by_hand: ByHand) -> None:
    ids = enqueue_many(store, 30)
    finished = claim_ids(store, 1)
    seen = []
    after = None
    while True:
        page = store.jobs(limit=7, after=after)
        seen += [job.id for job in page.items]
        enqueue_many(store, 5)
        by_hand("UPDATE holdfast_jobs SET state = 'succeeded' WHERE id = :id AND state = 'running'", id=finished[0])
        after = page.after
        if after is None:
            break
    assert seen == list(reversed(ids))


def test_pages_can_be_filtered(store: SqlStore) -> None:
    mine = {
        (queue, task): [enqueue(store, task, queue=queue) for _ in range(3)]
        for queue in ("a", "b")
        for task in ("x", "y")
    }
    store.cancel([mine["a", "x"][0], mine["b", "y"][2]])

    def listed(**filters: Any) -> set[str]:
        return {job.id for job in store.jobs(**filters).items}

    assert listed(queue="a") == {*mine["a", "x"], *mine["a", "y"]}
    assert listed(task="y") == {*mine["a", "y"], *mine["b", "y"]}
    assert listed(queue="b", task="x") == set(mine["b", "x"])
    assert listed(states=[State.CANCELLED]) == {mine["a", "x"][0], mine["b", "y"][2]}
    assert listed(states=[State.CANCELLED, State.PENDING]) == {job for jobs in mine.values() for job in jobs}
    assert listed(states=[State.CANCELLED], queue="a", task="x") == {mine["a", "x"][0]}
    assert listed(states=[State.RUNNING]) == listed(queue="none") == set()
    assert listed(after=mine["a", "x"][1]) == {mine["a", "x"][0]}


def test_a_filter_holds_over_all_its_pages(store: SqlStore) -> None:
    ids = [enqueue(store, queue="odd" if number % 2 else "even") for number in range(25)]
    first = store.jobs(queue="odd", limit=8)
    second = store.jobs(queue="odd", limit=8, after=first.after)
    assert [job.id for job in (*first.items, *second.items)] == ids[-2::-2]


# One job


def test_a_job_is_shown_without_its_token(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    job = store.job(claimed.job_id)
    [(digest,)] = by_hand("SELECT lease_token FROM holdfast_jobs")
    assert digest not in repr(job)
    assert "lease_token" not in {field.name for field in fields(Job)}
    assert digest not in repr(store.jobs())


def test_a_listing_shows_the_same_as_a_look(store: SqlStore) -> None:
    for state in State:
        job_in(store, state, payload={"state": str(state)}, delay=0)
    assert len(store.jobs().items) == 6
    for job in store.jobs().items:
        assert store.job(job.id) == job


def test_every_time_has_a_time_zone(store: SqlStore) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    for moment in (
        *(getattr(store.job(claimed.job_id), name) for name in ("run_after", "created_at", "cancel_requested_at")),
        *(event.at for event in store.events(claimed.job_id)),
        *(attempt.started_at for attempt in store.attempts(claimed.job_id)),
    ):
        assert moment.utcoffset() == timedelta(0)


def test_a_job_that_is_not_there_is_not_found(store: SqlStore) -> None:
    with pytest.raises(NotFound, match=UNKNOWN):
        store.job(UNKNOWN)
    with pytest.raises(LookupError):
        store.job(UNKNOWN)
    assert (store.events(UNKNOWN), store.attempts(UNKNOWN)) == ([], [])


def test_the_history_of_a_pruned_job_can_still_be_read(store: SqlStore, by_hand: ByHand) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    by_hand("DELETE FROM holdfast_jobs")
    with pytest.raises(NotFound):
        store.job(job_id)
    assert history(store, job_id) == ["enqueued", "claimed", "succeeded", "pruned"]
    assert [attempt.outcome for attempt in store.attempts(job_id)] == ["succeeded"]


def test_jobs_are_counted_by_state(store: SqlStore) -> None:
    assert store.counts() == {}
    for state in (*State, State.FAILED):
        job_in(store, state, delay=0)
    assert store.counts() == {str(state): 2 if state is State.FAILED else 1 for state in State}


# Events and attempts


def test_a_history_is_in_order_and_has_no_gap(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, max_attempts=9, max_crashes=9)
    for outcome in (Released(), BROKEN, Snoozed(5), Crashed("gone", signal=9), Succeeded()):
        clock.move(20)
        settle_well(store, claim_this(store, job_id), outcome)
    events = store.events(job_id)
    assert [event.seq for event in events] == list(range(1, 12))
    assert [event.to_state for event in events[:-1]] == [event.from_state for event in events[1:]]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert {event.job_id for event in events} == {job_id}


def test_each_attempt_is_a_row(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, max_attempts=9, max_crashes=9)
    error = JobError("Boom", "it broke", "Traceback …")
    outcomes: list[tuple[str, Outcome, dict[str, Any]]] = [
        ("retry_scheduled", Failed(error, exit_code=2), {"exit_code": 2, "error": error.to_json()}),
        ("crashed", Crashed("killed", exit_code=-9, signal=9), {"exit_code": -9, "signal": 9}),
        ("released", Released(), {"error": None, "exit_code": None, "signal": None}),
        ("snoozed", Snoozed(3), {}),
        ("succeeded", Succeeded({"ok": True}), {"error": None}),
    ]
    for number, (_, outcome, _) in enumerate(outcomes, start=1):
        clock.move(100)
        claimed = claim_this(store, job_id, f"worker-{number}")
        clock.move(number)
        assert store.settle([report(claimed, outcome)])[0].ok
    attempts = store.attempts(job_id)
    assert [attempt.attempt for attempt in attempts] == [1, 2, 3, 4, 5]
    assert [attempt.worker for attempt in attempts] == [f"worker-{number}" for number in range(1, 6)]
    assert [attempt.outcome for attempt in attempts] == [name for name, _, _ in outcomes]
    assert [attempt.duration_ms for attempt in attempts] == [1_000, 2_000, 3_000, 4_000, 5_000]
    for attempt, (_, _, expected) in zip(attempts, outcomes, strict=True):
        assert {name: getattr(attempt, name) for name in expected} == expected
        assert attempt.finished_at is not None
        assert attempt.finished_at - attempt.started_at == timedelta(seconds=attempt.attempt)
    crash = attempts[1].error
    assert crash is not None
    assert (crash["code"], crash["message"]) == ("crashed", "killed")


def test_an_attempt_that_runs_has_no_end_yet(store: SqlStore) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    [attempt] = store.attempts(claimed.job_id)
    assert (attempt.outcome, attempt.finished_at, attempt.duration_ms, attempt.error) == (None, None, None, None)


def test_an_attempt_that_was_lost_or_ended_by_hand_says_so(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    first = start(store)
    lose_lease(store, clock, first)
    claim(store, "bob")
    by_hand("UPDATE holdfast_jobs SET state = 'failed'")
    store.requeue([first.job_id])
    claim(store, "cat")
    lost, by_operator, running = store.attempts(first.job_id)
    assert (lost.outcome, by_operator.outcome, running.outcome) == ("lease_lost", "failed", None)
    assert lost.error is not None
    assert lost.error["code"] == "worker_lost"
    assert by_operator.error is None


def test_measured_usage_goes_before_the_clock_s(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(60)
    store.settle([report(claimed, Succeeded(), usage=Usage(duration_ms=0, cpu_ms=3, max_rss_kb=2**40))])
    [attempt] = store.attempts(claimed.job_id)
    assert (attempt.duration_ms, attempt.cpu_ms, attempt.max_rss_kb) == (0, 3, 2**40)


# Queues


def test_queues_are_counted(store: SqlStore, clock: Clock) -> None:
    enqueue_many(store, 3, queue="mail")
    oldest = clock.now()
    clock.move(10)
    enqueue_many(store, 2, queue="mail")
    enqueue(store, queue="mail", delay=60)
    settle_well(store, start(store, queue="retries"), BROKEN)
    start(store, queue="busy")
    job_in(store, State.SUCCEEDED, queue="done")
    store.pause_queue("mail")
    store.limit_queue("empty", 3)
    views = {queue.name: queue for queue in store.queues()}
    assert list(views) == ["busy", "empty", "mail", "retries"]
    mail = views["mail"]
    assert (mail.ready, mail.scheduled, mail.running) == (5, 1, 0)
    assert (mail.oldest_ready_at, mail.paused_at, mail.max_running) == (oldest, clock.now(), None)
    busy, retries, empty = views["busy"], views["retries"], views["empty"]
    assert (busy.ready, busy.scheduled, busy.running, busy.oldest_ready_at) == (0, 0, 1, None)
    assert (retries.ready, retries.scheduled) == (0, 1)
    assert (empty.ready, empty.running, empty.max_running, empty.paused_at) == (0, 0, 3, None)


def test_no_queue_is_known_before_the_first_job(store: SqlStore) -> None:
    assert store.queues() == []


# Refusals


def test_refusals_are_listed_latest_first(store: SqlStore, clock: Clock) -> None:
    claims = [start(store) for _ in range(3)]
    for claimed in claims:
        settle_well(store, claimed, Succeeded())
        clock.move(1)
        store.settle([report(claimed, BROKEN)])
    assert [refusal.job_id for refusal in store.refusals()] == [claimed.job_id for claimed in reversed(claims)]
    first = store.refusals(claims[0].job_id)[0]
    assert first.first_at == first.last_at
    clock.move(5)
    store.settle([report(claims[0], BROKEN)])
    again = store.refusals()[0]
    assert (again.job_id, again.count, again.first_at) == (claims[0].job_id, 2, first.first_at)
    assert again.last_at == clock.now()
