"""Cancel and requeue: each job is answered for itself, and asking again does no harm."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.answers import Operated, OperatorAnswer, Status
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import (
    BROKEN,
    HOPELESS,
    KILLED,
    claim,
    claim_ids,
    claim_this,
    enqueue,
    enqueue_many,
    history,
    job_in,
    lose_lease,
    new,
    settle,
    settle_well,
    start,
)
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


# Cancel


@pytest.mark.parametrize("state", [State.PENDING, State.RETRYABLE])
def test_a_waiting_job_is_cancelled_at_once(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    clock.move(5)
    assert store.cancel([job_id]) == [OperatorAnswer(job_id, Operated.CANCELLED, State.CANCELLED)]
    job = store.job(job_id)
    assert (job.state, job.finished_at, job.updated_at) == (State.CANCELLED, clock.now(), clock.now())
    assert (job.failures, job.crashes, job.attempt) == (before.failures, before.crashes, before.attempt)
    event = store.events(job_id)[-1]
    assert (event.event, event.from_state, event.to_state) == ("cancelled", str(state), "cancelled")
    assert event.detail == {"by": "operator"}


def test_a_running_job_is_asked_to_stop(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(5)
    assert store.cancel([claimed.job_id]) == [OperatorAnswer(claimed.job_id, Operated.CANCEL_REQUESTED, State.RUNNING)]
    job = store.job(claimed.job_id)
    assert (job.state, job.lease_owner, job.cancel_requested_at) == (State.RUNNING, "ann", clock.now())
    event = store.events(claimed.job_id)[-1]
    assert (event.event, event.from_state, event.to_state) == ("cancel_requested", "running", "running")
    assert (event.attempt, event.worker) == (1, "ann")


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_a_finished_job_is_not_cancelled(store: SqlStore, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    assert store.cancel([job_id]) == [OperatorAnswer(job_id, Operated.WRONG_STATE, state)]
    assert store.job(job_id) == before


def test_cancelling_again_is_the_same_answer_and_no_new_event(store: SqlStore, by_hand: ByHand) -> None:
    waiting, running = enqueue(store, delay=60), start(store).job_id
    first = store.cancel([waiting, running])
    before = by_hand.everything()
    assert store.cancel([waiting, running]) == first
    assert all(answer.ok for answer in first)
    assert by_hand.everything() == before


def test_a_cancelled_job_is_never_claimed(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, delay=10)
    store.cancel([job_id])
    clock.move(20)
    assert claim_ids(store) == []
    assert store.claim_job("ann", job_id) is None


def test_many_are_answered_one_by_one_in_order(store: SqlStore) -> None:
    states = [State.SUCCEEDED, State.PENDING, State.RUNNING, State.FAILED, State.RETRYABLE, State.CANCELLED]
    ids = [job_in(store, state) for state in states]
    asked = [*ids, UNKNOWN, ids[1]]
    answers = store.cancel(asked)
    assert [answer.job_id for answer in answers] == asked
    assert [answer.did for answer in answers] == [
        Operated.WRONG_STATE,
        Operated.CANCELLED,
        Operated.CANCEL_REQUESTED,
        Operated.WRONG_STATE,
        Operated.CANCELLED,
        Operated.CANCELLED,
        Operated.NOT_FOUND,
        Operated.CANCELLED,
    ]
    assert history(store, ids[1]) == ["enqueued", "cancelled"]


def test_nothing_asked_nothing_done(store: SqlStore) -> None:
    assert store.cancel([]) == []
    assert store.requeue([]) == []


def test_a_thousand_jobs_are_cancelled_at_once(store: SqlStore, by_hand: ByHand) -> None:
    ids = enqueue_many(store, 1_000)
    assert {answer.did for answer in store.cancel(ids)} == {Operated.CANCELLED}
    assert by_hand.count("holdfast_events", "event = 'cancelled'") == 1_000


def test_a_cancel_frees_the_unique_key(store: SqlStore) -> None:
    job_id = enqueue(store, unique_key="k")
    store.cancel([job_id])
    assert store.enqueue(new(unique_key="k")).created


def test_a_cancelled_run_that_is_lost_is_cancelled_by_the_reaper(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    lose_lease(store, clock, claimed)
    job = store.job(claimed.job_id)
    assert (job.state, job.crashes) == (State.CANCELLED, 0)


# Requeue


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED])
def test_a_dead_job_is_given_a_new_life(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    clock.move(100)
    assert store.requeue([job_id]) == [OperatorAnswer(job_id, Operated.REQUEUED, State.PENDING)]
    job = store.job(job_id)
    assert (job.state, job.failures, job.crashes, job.finished_at) == (State.PENDING, 0, 0, None)
    assert (job.cancel_requested_at, job.run_after) == (None, clock.now())
    assert job.attempt == before.attempt, "the fence number only ever grows"
    event = store.events(job_id)[-1]
    assert (event.event, event.from_state, event.to_state) == ("requeued", str(state), "pending")
    assert claim(store).attempt == before.attempt + 1


def test_a_new_life_has_a_new_budget(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=2)
    settle_well(store, claimed, KILLED)
    assert settle_well(store, claim_this(store, claimed.job_id), BROKEN).state is State.FAILED
    store.requeue([claimed.job_id])
    assert settle_well(store, claim_this(store, claimed.job_id), BROKEN).state is State.RETRYABLE
    clock.move(13)
    assert settle_well(store, claim_this(store, claimed.job_id), BROKEN).state is State.FAILED
    job = store.job(claimed.job_id)
    assert (job.attempt, job.failures, job.crashes) == (4, 2, 0)


def test_a_new_life_is_not_cancelled_by_the_old_one_s_request(store: SqlStore) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    assert settle_well(store, claimed, BROKEN).state is State.CANCELLED
    store.requeue([claimed.job_id])
    assert settle_well(store, claim(store), Released()).state is State.PENDING


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.RETRYABLE, State.SUCCEEDED])
def test_only_the_dead_are_requeued(store: SqlStore, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    assert store.requeue([job_id]) == [OperatorAnswer(job_id, Operated.WRONG_STATE, state)]
    assert store.job(job_id) == before


def test_requeueing_again_finds_it_alive(store: SqlStore) -> None:
    job_id = job_in(store, State.FAILED)
    assert store.requeue([job_id, job_id])[0].did is Operated.REQUEUED
    assert store.requeue([job_id])[0].did is Operated.WRONG_STATE
    assert history(store, job_id).count("requeued") == 1


def test_a_zombie_of_the_old_life_is_refused_in_the_new(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, HOPELESS)
    store.requeue([claimed.job_id])
    claim(store)
    assert settle(store, claimed, Succeeded()).status is Status.REFUSED


def test_a_taken_key_keeps_only_its_own_row_back(store: SqlStore) -> None:
    taken = job_in(store, State.FAILED, unique_key="taken")
    free = job_in(store, State.FAILED, unique_key="free")
    plain = job_in(store, State.CANCELLED)
    holder = enqueue(store, unique_key="taken")
    other_task = job_in(store, State.FAILED, task="other", unique_key="taken")
    before = store.job(taken)
    answers = store.requeue([taken, free, UNKNOWN, plain, other_task])
    assert [answer.did for answer in answers] == [
        Operated.KEY_TAKEN,
        Operated.REQUEUED,
        Operated.NOT_FOUND,
        Operated.REQUEUED,
        Operated.REQUEUED,
    ]
    assert store.job(taken) == before
    store.cancel([holder])
    assert store.requeue([taken])[0].did is Operated.REQUEUED


def test_of_two_with_one_key_the_older_is_requeued(store: SqlStore) -> None:
    ids = [job_in(store, State.FAILED, unique_key="k") for _ in range(3)]
    answers = store.requeue([ids[2], ids[0], ids[1]])
    assert [answer.did for answer in answers] == [Operated.KEY_TAKEN, Operated.REQUEUED, Operated.KEY_TAKEN]
    assert store.job(ids[0]).state is State.PENDING


def test_a_key_that_looks_like_another_s_id_is_no_clash(store: SqlStore) -> None:
    plain = job_in(store, State.FAILED)
    named = job_in(store, State.FAILED, unique_key=plain)
    assert [answer.did for answer in store.requeue([plain, named])] == [Operated.REQUEUED, Operated.REQUEUED]


def test_a_thousand_jobs_are_requeued_at_once(store: SqlStore, by_hand: ByHand) -> None:
    ids = enqueue_many(store, 1_000)
    store.cancel(ids)
    assert {answer.did for answer in store.requeue(ids)} == {Operated.REQUEUED}
    assert by_hand.count("holdfast_jobs", "state = 'pending'") == 1_000


# Behind somebody's lock


@on_postgres
def test_a_locked_row_is_busy_for_cancel(store: SqlStore, by_hand: ByHand) -> None:
    waiting, running, free = enqueue(store, delay=9), start(store).job_id, enqueue(store, delay=9)
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_jobs WHERE id <> :id FOR UPDATE", id=free)
        answers = store.cancel([waiting, running, free])
    assert [answer.did for answer in answers] == [Operated.BUSY, Operated.BUSY, Operated.CANCELLED]
    assert not answers[0].ok


@on_postgres
def test_a_locked_row_is_busy_for_requeue(store: SqlStore, by_hand: ByHand) -> None:
    locked, free = job_in(store, State.FAILED), job_in(store, State.FAILED)
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR UPDATE", id=locked)
        answers = store.requeue([locked, free])
    assert [answer.did for answer in answers] == [Operated.BUSY, Operated.REQUEUED]


@on_postgres
def test_a_key_taken_at_the_last_moment_keeps_only_its_own_row_back(store: SqlStore, by_hand: ByHand) -> None:
    """Taken by a transaction that had not committed when the requeue looked."""
    keyed, plain = job_in(store, State.FAILED, unique_key="k"), job_in(store, State.FAILED)
    answers: list[OperatorAnswer] = []
    with by_hand.engine.begin() as connection:
        store.enqueue(new(unique_key="k"), connection=connection)
        operator = threading.Thread(target=lambda: answers.extend(store.requeue([keyed, plain])))
        operator.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        wait_until(lambda: by_hand(waiting) == [(1,)] or not operator.is_alive(), what="the requeue to wait")
    operator.join(DEADLINE_SECONDS)
    assert [answer.did for answer in answers] == [Operated.KEY_TAKEN, Operated.REQUEUED]


# Queues


def test_pausing_is_remembered_with_its_time(store: SqlStore, clock: Clock) -> None:
    paused = clock.now()
    store.pause_queue("mail")
    clock.move(60)
    store.pause_queue("mail")
    [queue] = store.queues()
    assert (queue.name, queue.paused_at) == ("mail", paused), "paused since the first time"
    store.limit_queue("mail", 5)
    assert store.queues()[0].paused_at == paused
    store.resume_queue("mail")
    [queue] = store.queues()
    assert (queue.paused_at, queue.max_running) == (None, 5)
    assert clock.now() - paused == timedelta(seconds=60)


def test_queues_may_be_set_up_before_their_first_job(store: SqlStore) -> None:
    store.resume_queue("never-paused")
    store.limit_queue("narrow", 0)
    views: dict[str, Any] = {queue.name: queue for queue in store.queues()}
    assert (views["never-paused"].paused_at, views["narrow"].max_running) == (None, 0)
