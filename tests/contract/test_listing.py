"""Lists for clients far away: of their queues only, without what is large, counted up to a bound."""

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.errors import Conflict, InvalidInput, NotFound
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.contract.steps import claim_this, enqueue, job_in, settle_well

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
NAMES = ("a/b", "ünï %25 'x\"", "c")


def put(store: SqlStore, queue: str, **options: object) -> str:
    return store.enqueue(NewJob.from_options({"task": "echo", "queue": queue, **options})).id


def test_pages_of_some_queues_are_full_of_them(store: SqlStore) -> None:
    ids = [put(store, NAMES[n % 3]) for n in range(12)]
    wanted = [job_id for n, job_id in enumerate(ids) if n % 3 != 2]
    first = store.listed(queues=NAMES[:2], limit=5)
    rest = store.listed(queues=NAMES[:2], limit=5, after=first.after)
    assert [item.job.id for item in (*first.items, *rest.items)] == wanted[::-1]
    assert (len(first.items), rest.after) == (5, None)
    assert store.listed(queues=()).items == ()


def test_what_is_large_is_left_out_of_a_list_and_named(store: SqlStore) -> None:
    small = put(store, "q", payload={"text": "ä" * 1000})
    large = put(store, "q", payload={"text": "ä" * 5000})
    listed = {item.job.id: item for item in store.listed().items}
    assert (listed[small].job, listed[small].omitted) == (store.job(small), ())
    assert (listed[large].job.payload, listed[large].omitted) == ({}, ("payload",))


def test_states_and_task_narrow_a_list(store: SqlStore) -> None:
    done = job_in(store, State.SUCCEEDED)
    enqueue(store)
    assert [item.job.id for item in store.listed(states=[State.SUCCEEDED]).items] == [done]
    assert store.listed(task="nobody").items == ()


def test_what_runs_is_listed_the_longest_first_without_what_is_large(store: SqlStore) -> None:
    later, first = put(store, "q", payload={"text": "ä" * 5000}), put(store, "q")
    put(store, "q")
    claim_this(store, first)
    claim_this(store, later)
    assert [(item.job.id, item.omitted) for item in store.running()] == [(first, ()), (later, ("payload",))]
    assert [item.job.id for item in store.running(limit=1)] == [first]
    with pytest.raises(InvalidInput, match="limit"):
        store.running(limit=0)


def test_jobs_are_counted_by_state_and_queue(store: SqlStore) -> None:
    for queue in ("a", "a", "b"):
        put(store, queue)
    settle_well(store, claim_this(store, put(store, "b")), Succeeded())
    claim_this(store, put(store, "c"))
    counted = {str(item.state): item.count for item in store.state_counts()}
    assert counted == {"pending": 3, "running": 1, "retryable": 0, "succeeded": 1, "failed": 0, "cancelled": 0}
    assert sum(item.count for item in store.state_counts(["b"])) == 2
    [pending] = [item for item in store.state_counts(["a"], most=2) if item.state is State.PENDING]
    assert (pending.count, pending.at_least) == (2, True)


def test_a_jobs_queue_and_what_is_said_of_a_queue(store: SqlStore) -> None:
    assert store.queue_of(put(store, NAMES[1])) == NAMES[1]
    assert store.queue_of(UNKNOWN) is None
    known = {put(store, name): name for name in ("a", "b", NAMES[1])}
    assert store.queues_of([*known, UNKNOWN]) == known
    assert store.queues_of([]) == {}
    assert store.queue_settings("a/b").paused_at is None
    store.pause_queue("a/b")
    store.limit_queue("a/b", 4)
    assert store.queue_settings("a/b").paused_at is not None
    assert store.queue_settings("a/b").max_running == 4


def test_refusals_of_some_queues(store: SqlStore) -> None:
    for queue in ("a", "b"):
        held = claim_this(store, put(store, queue))
        store.heartbeat([Beat(held.job_id, held.attempt, "forged", "somebody")])
    assert len(store.refusals()) == 2
    assert [store.queue_of(found.job_id) for found in store.refusals_in(["b"])] == ["b"]


def test_a_replay_is_a_new_job_of_the_same_spec(store: SqlStore) -> None:
    retry = {"kind": "fixed", "base": 1.0, "jitter": 0.0, "cap": 5.0}
    original = put(store, "q", payload={"n": 1.0}, version="2", priority=7, max_attempts=9, retry=retry, source="s")
    settle_well(store, claim_this(store, original), Succeeded())
    answer = store.replay(original)
    first, again = store.job(original), store.job(answer.id)
    assert (answer.created, again.replay_of, again.state) == (True, original, State.PENDING)
    same = ("task", "task_version", "payload", "spec_hash", "queue", "priority", "max_attempts", "retry", "source")
    assert [getattr(again, name) for name in same] == [getattr(first, name) for name in same]


def test_a_replay_with_an_id_can_be_asked_for_again(store: SqlStore) -> None:
    original = put(store, "q")
    assert store.replay(original, UNKNOWN).created
    assert (store.replay(original, UNKNOWN).id, store.replay(original, UNKNOWN).created) == (UNKNOWN, False)


def test_a_replay_waits_until_its_unique_key_is_free(store: SqlStore) -> None:
    original = put(store, "q", unique_key="one")
    with pytest.raises(Conflict, match=original):
        store.replay(original)
    settle_well(store, claim_this(store, original), Succeeded())
    assert store.replay(original).created
    with pytest.raises(NotFound):
        store.replay(UNKNOWN)
