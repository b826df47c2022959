"""Claim: only what can be run now, in a strict order, each job to one worker under a secret of its own."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.digests import token_digest
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Report, Snoozed, Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import look, words
from holdfast.stores.verbs.admitting import walk_parameters
from holdfast.stores.verbs.looking import Looking
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import (
    BROKEN,
    EXACT,
    claim,
    claim_ids,
    enqueue,
    enqueue_many,
    history,
    job_in,
    reap,
    settle_well,
    start,
)


def test_a_claimed_job_is_running_under_a_lease(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, lease_seconds=45)
    claimed = claim(store, "ann")
    job = store.job(job_id)
    assert (job.state, job.attempt, job.lease_owner) == (State.RUNNING, 1, "ann")
    assert job.lease_expires_at == clock.now() + timedelta(seconds=45)
    assert job.claimed_at == job.started_at == job.updated_at == clock.now()
    assert (job.heartbeat_at, job.finished_at) == (None, None)
    event = store.events(job_id)[-1]
    assert (event.seq, event.event, event.from_state, event.to_state) == (2, "claimed", "pending", "running")
    assert (event.attempt, event.worker, event.lease) == (1, "ann", token_digest(claimed.lease_token))
    assert event.at == clock.now()


def test_a_worker_is_told_all_it_needs(store: SqlStore) -> None:
    enqueue(
        store,
        "resize",
        payload={"width": 3},
        version="2",
        queue="images",
        source="shop",
        timeout_seconds=9.5,
        lease_seconds=30,
        traceparent="00-abc-def-01",
    )
    claimed = claim(store)
    assert (claimed.task, claimed.task_version, claimed.queue, claimed.source) == ("resize", "2", "images", "shop")
    assert (claimed.payload, claimed.attempt, claimed.crashes) == ({"width": 3}, 1, 0)
    assert (claimed.timeout_seconds, claimed.lease_seconds, claimed.traceparent) == (9.5, 30.0, "00-abc-def-01")
    assert claimed.attempt_id == f"{claimed.job_id}.1"
    assert claimed.lease_token not in repr(claimed)


def test_a_worker_is_told_how_long_a_job_has_been_due_where_that_is_known(store: SqlStore, clock: Clock) -> None:
    clock.hold()
    enqueue(store, retry=EXACT, delay=10.0)
    clock.move(15.0)
    first = claim(store)
    assert first.due_seconds == pytest.approx(5.0, abs=0.01)
    settle_well(store, first, BROKEN)
    clock.move(store.job(first.job_id).run_after.timestamp() - clock.now().timestamp() + 3.0)
    again = claim(store)
    assert again.due_seconds == pytest.approx(3.0, abs=0.01), "of a retry, since the retry was due"
    settle_well(store, again, Released("the worker stops"))
    clock.move(60.0)
    assert claim(store).due_seconds is None, "it kept its place in line, and its due time with it"


def test_claim_job_tells_the_same(store: SqlStore) -> None:
    options: dict[str, Any] = {"payload": {"a": [1, None]}, "queue": "q", "source": "s", "timeout_seconds": 2}
    one = store.claim_job("ann", enqueue(store, **options))
    enqueue(store, **options)
    other = claim(store)
    assert one is not None
    names = ("task", "task_version", "queue", "source", "payload", "attempt", "crashes", "timeout_seconds")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


def test_a_job_is_claimed_once(store: SqlStore) -> None:
    ids = enqueue_many(store, 10)
    taken = [claim_ids(store, 3), claim_ids(store, 3), claim_ids(store, 3), claim_ids(store, 3), claim_ids(store, 3)]
    assert taken == [ids[0:3], ids[3:6], ids[6:9], ids[9:], []]


def test_a_batch_may_be_bigger_than_the_backlog(store: SqlStore) -> None:
    ids = enqueue_many(store, 7)
    assert claim_ids(store, 10_000) == ids
    assert claim_ids(store, 10_000) == []


def test_nothing_to_do_is_an_empty_answer(store: SqlStore) -> None:
    assert store.claim("ann", 10) == []
    assert store.claim("ann", 10, queues=["none"], tasks=["none"]) == []


def test_queues_are_walked_strictly_in_the_given_order(store: SqlStore) -> None:
    wanted = {}
    for number, queue in enumerate(["c", "a", "b"] * 3):
        wanted[enqueue(store, queue=queue, priority=number)] = queue
    first = claim_ids(store, 4, queues=["b", "c", "a"])
    assert [wanted[job_id] for job_id in first] == ["b", "b", "b", "c"]
    rest = claim_ids(store, 100, queues=["b", "c", "a"])
    assert [wanted[job_id] for job_id in rest] == ["c", "c", "a", "a", "a"]


def test_a_higher_priority_in_a_later_queue_waits(store: SqlStore) -> None:
    urgent = enqueue(store, queue="later", priority=100)
    calm = enqueue(store, queue="sooner", priority=-100)
    assert claim_ids(store, 10, queues=["sooner", "later"]) == [calm, urgent]


def test_a_queue_named_twice_counts_once(store: SqlStore) -> None:
    ids = enqueue_many(store, 4, queue="q")
    assert claim_ids(store, 10, queues=["q", "other", "q"]) == ids


def test_only_the_queues_asked_for_are_looked_at(store: SqlStore) -> None:
    enqueue(store, queue="other")
    wanted = enqueue(store, queue="mine")
    assert claim_ids(store, queues=["mine"]) == [wanted]
    assert claim_ids(store, queues=[]) == []


def test_without_queues_all_of_them_are_served(store: SqlStore) -> None:
    ids = {enqueue(store, queue=f"queue-{number}") for number in range(12)}
    assert set(claim_ids(store, queues=None)) == ids


def test_without_queues_none_starves_behind_another_s_name(store: SqlStore) -> None:
    enqueue_many(store, 60, queue="a")
    late = enqueue(store, queue="z")
    drawn = [claim_ids(store, 1) for _ in range(60)]
    assert [late] in drawn, "the chance that 60 draws out of two all miss one is nil"


def test_only_known_tasks_are_claimed(store: SqlStore) -> None:
    unknown = enqueue_many(store, 50, "unknown", priority=100)
    known = [enqueue(store, task) for task in ("add", "mail", "add")]
    assert claim_ids(store, tasks=["mail", "add"]) == known
    assert claim_ids(store, tasks=[]) == []
    assert claim_ids(store, tasks=None) == unknown


def test_order_is_first_in_first_out_across_tasks_and_sources(store: SqlStore) -> None:
    kinds = [("mail", None), ("add", "shop"), ("zip", None), ("add", None), ("add", "bank"), ("mail", "shop")]
    ids = [enqueue(store, task, source=source) for task, source in kinds * 4]
    assert claim_ids(store, 5) == ids[:5]
    assert claim_ids(store, 100) == ids[5:]


def test_order_is_priority_then_due_time_then_age(store: SqlStore, clock: Clock) -> None:
    late = enqueue(store, delay=30)
    soon = enqueue(store, delay=10)
    urgent = enqueue(store, delay=30, priority=1)
    twin = [enqueue(store, delay=20, task=task) for task in ("z", "a")]
    clock.move(31)
    assert claim_ids(store) == [urgent, soon, *twin, late]


def test_the_future_at_top_priority_hides_nothing(store: SqlStore) -> None:
    enqueue_many(store, 200, priority=100, delay="7d")
    due = enqueue(store, priority=-100)
    assert claim_ids(store) == [due]


def test_jobs_in_backoff_are_not_claimed_before_their_time(store: SqlStore, clock: Clock) -> None:
    job_id = job_in(store, State.RETRYABLE)
    assert claim_ids(store) == []
    clock.move(12.1)
    claimed = claim(store)
    assert (claimed.job_id, claimed.attempt) == (job_id, 2)
    assert history(store, job_id) == ["enqueued", "claimed", "retry_scheduled", "claimed"]


@pytest.mark.parametrize("state", [State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_no_other_state_is_ever_claimed(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    clock.move(10_000_000)
    assert claim_ids(store) == [], "not even a running job whose lease expired: that is the reaper's"
    assert store.job(job_id).state is state


def test_a_paused_queue_rests_until_it_is_resumed(store: SqlStore) -> None:
    resting = enqueue(store, queue="resting", priority=100)
    running = enqueue(store, queue="open")
    store.pause_queue("resting")
    assert claim_ids(store) == [running]
    assert claim_ids(store, queues=["resting", "open"]) == []
    assert store.claim_job("ann", resting) is None
    store.pause_queue("resting")
    store.resume_queue("resting")
    assert claim_ids(store, queues=["resting"]) == [resting]


def test_pausing_touches_no_running_job(store: SqlStore) -> None:
    claimed = start(store)
    store.pause_queue("default")
    assert settle_well(store, claimed, Succeeded()).state is State.SUCCEEDED


def test_started_is_the_first_start_and_claimed_the_current_one(store: SqlStore, clock: Clock) -> None:
    first = start(store)
    started = clock.now()
    settle_well(store, first, Released())
    clock.move(100)
    claim(store, "bob")
    job = store.job(first.job_id)
    assert (job.started_at, job.claimed_at) == (started, clock.now())
    assert (job.lease_owner, job.attempt) == ("bob", 2)


def test_a_released_job_goes_back_to_its_place(store: SqlStore) -> None:
    ids = enqueue_many(store, 3)
    settle_well(store, store.claim("ann", 1)[0], Released())
    assert claim_ids(store) == ids


def test_a_snoozed_job_comes_back_when_it_asked_to(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    settle_well(store, claimed, Snoozed(60))
    clock.move(59.999)
    assert claim_ids(store) == []
    clock.move(0.001)
    assert claim_ids(store) == [claimed.job_id]


# The secret


def test_tokens_differ_and_say_nothing_about_each_other(store: SqlStore) -> None:
    enqueue_many(store, 50)
    claims = store.claim("ann", 20) + store.claim("ann", 30)
    tokens = {claimed.lease_token for claimed in claims}
    assert len(tokens) == 50
    assert all(len(bytes.fromhex(token)) == 32 for token in tokens)
    for claimed in claims:
        assert claimed.job_id.replace("-", "")[:8] not in claimed.lease_token


def test_a_job_s_next_token_is_another(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, Released())
    again = claim(store)
    assert again.lease_token != claimed.lease_token


def test_tokens_are_never_stored(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    """Whoever reads the database, a backup or the log cannot act as the holder of a lease."""
    enqueue_many(store, 5)
    claims = store.claim("ann", 5)
    settle_well(store, claims[0], Succeeded({"done": True}))
    settle_well(store, claims[1], BROKEN)
    settle_well(store, claims[2], Released())
    assert not store.settle([_forged(claims[3])])[0].ok
    reap(store)
    clock.move(30)
    reap(store)
    clock.move(31)
    reap(store)
    stored = repr(by_hand.everything())
    for claimed in claims:
        assert claimed.lease_token not in stored
        assert token_digest(claimed.lease_token) in stored


def _forged(claimed: Claimed) -> Report:
    return Report(claimed.job_id, claimed.attempt, "0" * 64, Succeeded(), worker="eve")


def test_the_database_s_digest_is_ours(store: SqlStore, by_hand: ByHand) -> None:
    enqueue_many(store, 3)
    for claimed in [*store.claim("ann", 2), store.claim_job("ann", store.jobs(states=[State.PENDING]).items[0].id)]:
        assert claimed is not None
        [(stored,)] = by_hand("SELECT lease_token FROM holdfast_jobs WHERE id = :id", id=claimed.job_id)
        assert stored == token_digest(claimed.lease_token)


# Costs


@pytest.mark.new_tables
@on_postgres
def test_the_planner_thinks_a_look_cheap(store: SqlStore) -> None:
    """Over `jit_above_cost` a stock Postgres compiles the statement, which takes a hundred times as long as it runs."""
    parameters = walk_parameters(Looking(20, ("a", "b"), ("add",))) | {"closed": "[]", "shut": "[]"}
    for statement in (look.LOOK, look.LOOK_ALL_QUEUES, look.WAITING, look.WAITING_ALL_QUEUES):
        with store.database.statement() as transaction:
            transaction.cursor.execute(f"EXPLAIN (FORMAT JSON) {statement.driver_sql('postgresql')}", parameters)
            [[[plan]]] = transaction.cursor.fetchall()
        assert plan["Plan"]["Total Cost"] < 100_000, statement.name


def test_hot_statements_are_compiled_once(store: SqlStore, clock: Clock) -> None:
    """A listing that is rendered anew each time also stays in the cache each time."""

    def use_everything() -> None:
        job_id = store.enqueue(NewJob(task="add", unique_key="k", reuse_seconds=1)).id
        store.jobs(states=[State.PENDING], queue="default", task="add", after=job_id)
        store.jobs()
        store.set_source("shop", max_concurrent=1, enabled=True)
        store.stuck()
        for claimed in store.claim("ann", 1, queues=["default"]):
            settle_well(store, claimed, Succeeded())
        clock.move(0.6)  # so that every other job is one that has ended a while ago

    for _ in range(4):
        use_everything()
    before = words._compiled.cache_info().currsize
    for _ in range(5):
        use_everything()
    assert words._compiled.cache_info().currsize == before
