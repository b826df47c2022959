"""An accepted job is stored as it was asked for, in the order it was asked for."""

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import Conflict
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.spec import spec_hash
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import claim, claim_ids, enqueue, enqueue_many, history, new, settle_well, start

SOME_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_one_job_is_stored_and_answered(store: SqlStore) -> None:
    answer = store.enqueue(new("add", payload={"a": 1, "b": 2}))
    assert (answer.created, answer.state) == (True, State.PENDING)
    job = store.job(answer.id)
    assert (job.task, job.payload, job.state) == ("add", {"a": 1, "b": 2}, State.PENDING)
    assert (job.queue, job.priority, job.attempt, job.failures, job.crashes) == ("default", 0, 0, 0, 0)
    assert (job.max_attempts, job.max_crashes, job.lease_seconds, job.timeout_seconds) == (3, 3, 60.0, None)
    assert (job.seq, job.transition, job.spec_hash) == (1, "enqueued", spec_hash("add", None, {"a": 1, "b": 2}))


def test_every_option_is_stored(store: SqlStore) -> None:
    moment = datetime(2031, 5, 17, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    original = enqueue(store)
    options: dict[str, Any] = {
        "queue": "räume",
        "priority": -100,
        "max_attempts": 7,
        "max_crashes": 5,
        "timeout_seconds": 12.5,
        "lease_seconds": 90.0,
        "source": "shop",
        "unique_key": "007",
        "traceparent": "00-abc-def-01",
        "replay_of": original,
    }
    retry = RetryPolicy("linear", base=4.0, jitter=0.0, cap=100.0)
    job = store.job(enqueue(store, "resize", version="2", run_after=moment, retry=retry, **options))
    assert {name: getattr(job, name) for name in options} == options
    assert (job.task, job.task_version, job.run_after) == ("resize", "2", moment)
    assert job.retry == {"kind": "linear", "base": 4.0, "jitter": 0.0, "cap": 100.0}
    assert job.spec_hash == spec_hash("resize", "2", {})


def test_many_are_answered_in_the_order_they_were_given(store: SqlStore) -> None:
    answers = store.enqueue_many([new(payload={"number": number}) for number in range(50)])
    assert [store.job(answer.id).payload["number"] for answer in answers] == list(range(50))
    assert [answer.id for answer in answers] == sorted(answer.id for answer in answers)
    assert all(answer.created and answer.state is State.PENDING for answer in answers)


def test_an_empty_batch_is_no_work(store: SqlStore) -> None:
    assert store.enqueue_many([]) == []


@pytest.mark.parametrize("count", [1, 19, 20, 21])
def test_a_small_and_a_large_batch_are_stored_alike(store: SqlStore, count: int) -> None:
    """Below and above the size at which Postgres is fed by COPY."""
    options: dict[str, Any] = {
        "queue": "a\tb\\N".replace("\t", " "),
        "source": "null",
        "version": "\\N",
        "retry": RetryPolicy("fixed", 2.0, 0.0),
        "timeout_seconds": 0.25,
    }
    payload = {"text": 'tab\t newline\n back\\slash "quoted" \\N', "none": None, "float": 1.0, "big": 2**70}
    jobs = [new("copy", payload=payload, **options) for _ in range(count)]
    for answer in store.enqueue_many(jobs):
        job = store.job(answer.id)
        assert job.payload == payload
        assert isinstance(job.payload["float"], float)
        assert (job.queue, job.source, job.task_version) == (options["queue"], "null", "\\N")
        assert job.retry == {"kind": "fixed", "base": 2.0, "jitter": 0.0, "cap": 86400.0}
        assert (job.timeout_seconds, job.spec_hash) == (0.25, spec_hash("copy", "\\N", payload))
        assert history(store, answer.id) == ["enqueued"]


def test_five_thousand_jobs_are_one_batch(store: SqlStore, by_hand: ByHand) -> None:
    ids = enqueue_many(store, 5_000)
    assert by_hand.count("holdfast_jobs") == by_hand.count("holdfast_events") == 5_000
    assert claim_ids(store, 5_000) == ids


def test_a_batch_of_more_than_one_chunk_is_still_all_or_nothing(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store, "other", id=SOME_ID)
    jobs = [new(payload={"number": number}, delay=1) for number in range(5_001)]
    with pytest.raises(Conflict, match=SOME_ID):
        store.enqueue_many([*jobs, new(id=SOME_ID)])
    assert by_hand.count("holdfast_jobs") == 1


def test_jobs_are_claimed_first_in_first_out(store: SqlStore) -> None:
    ids = [enqueue(store) for _ in range(3)] + enqueue_many(store, 3) + enqueue_many(store, 30) + [enqueue(store)]
    assert claim_ids(store) == ids


def test_a_higher_priority_goes_first(store: SqlStore) -> None:
    priorities = [0, 100, -100, 5, 0, 5, 99]
    random.Random(1).shuffle(priorities)
    ids = {enqueue(store, priority=priority): priority for priority in priorities}
    claimed = [ids[job_id] for job_id in claim_ids(store)]
    assert claimed == sorted(priorities, reverse=True)


@pytest.mark.parametrize("delay", [60, 60.0, "1m", "60s", timedelta(minutes=1)])
def test_a_delayed_job_waits(store: SqlStore, clock: Clock, delay: float | str | timedelta) -> None:
    job_id = enqueue(store, delay=delay)
    assert store.job(job_id).run_after == clock.now() + timedelta(minutes=1)
    clock.move(59.999)
    assert claim_ids(store) == []
    clock.move(0.001)
    assert claim_ids(store) == [job_id]


def test_a_job_waits_for_its_moment(store: SqlStore, clock: Clock) -> None:
    moment = clock.now() + timedelta(hours=1)
    job_id = enqueue(store, run_after=moment)
    assert store.job(job_id).run_after == moment
    clock.move(3599.999)
    assert claim_ids(store) == []
    clock.move(0.001)
    assert claim_ids(store) == [job_id]


@pytest.mark.parametrize(
    "moment",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime(999, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2020, 2, 29, tzinfo=timezone(timedelta(hours=-11))),
    ],
    ids=lambda moment: str(moment.date()),
)
def test_a_moment_in_the_past_is_due_at_once(store: SqlStore, moment: datetime) -> None:
    job_id = enqueue(store, run_after=moment)
    assert store.job(job_id).run_after == moment
    assert claim_ids(store) == [job_id]


def test_a_moment_at_the_end_of_time_never_comes(store: SqlStore) -> None:
    moment = datetime.max.replace(tzinfo=UTC)
    job_id = enqueue(store, run_after=moment)
    assert store.job(job_id).run_after == moment
    assert claim_ids(store) == []


def test_delays_within_a_batch_are_each_job_s_own(store: SqlStore, clock: Clock) -> None:
    answers = store.enqueue_many([new(delay=20), new(), new(delay="10s")])
    later, now, soon = (answer.id for answer in answers)
    assert claim_ids(store) == [now]
    clock.move(10.1)
    assert claim_ids(store) == [soon]
    clock.move(10)
    assert claim_ids(store) == [later]


def test_an_id_of_one_s_own_is_kept(store: SqlStore) -> None:
    assert store.enqueue(new(id=SOME_ID.upper())) == Enqueued(SOME_ID, True, State.PENDING)
    assert store.job(SOME_ID).id == SOME_ID


def test_the_same_request_again_is_the_same_job(store: SqlStore) -> None:
    job = new(payload={"a": 1}, id=SOME_ID)
    assert store.enqueue(job).created
    assert store.enqueue(job) == Enqueued(SOME_ID, False, State.PENDING)
    claimed = claim(store)
    assert store.enqueue(job) == Enqueued(SOME_ID, False, State.RUNNING)
    settle_well(store, claimed, Succeeded())
    assert store.enqueue(job) == Enqueued(SOME_ID, False, State.SUCCEEDED)
    assert history(store, SOME_ID) == ["enqueued", "claimed", "succeeded"]


@pytest.mark.parametrize("other", [new("multiply", id=SOME_ID), new(payload={"a": 2}, id=SOME_ID)])
def test_another_request_under_a_taken_id_is_a_conflict(store: SqlStore, by_hand: ByHand, other: NewJob) -> None:
    store.enqueue(new(payload={"a": 1}, id=SOME_ID))
    before = by_hand.everything()
    with pytest.raises(Conflict, match=SOME_ID) as caught:
        store.enqueue(other)
    assert caught.value.field == "id"
    with pytest.raises(Conflict):
        store.enqueue_many([new(), other, new()])
    assert by_hand.everything() == before


def test_an_id_twice_in_one_batch_is_one_job(store: SqlStore, by_hand: ByHand) -> None:
    answers = store.enqueue_many([new(id=SOME_ID), new(), new(id=SOME_ID)])
    assert [answer.created for answer in answers] == [True, True, False]
    assert [answers[0].id, answers[2].id] == [SOME_ID, SOME_ID]
    assert by_hand.count("holdfast_jobs") == 2


def test_an_id_for_two_different_jobs_in_one_batch_is_a_conflict(store: SqlStore, by_hand: ByHand) -> None:
    with pytest.raises(Conflict, match=SOME_ID):
        store.enqueue_many([new(id=SOME_ID), new("other", id=SOME_ID)])
    assert by_hand.count("holdfast_jobs") == 0


def test_the_id_of_a_pruned_job_is_a_conflict(store: SqlStore, by_hand: ByHand) -> None:
    """Its history still stands; a second life would be appended to it."""
    settle_well(store, start(store, id=SOME_ID), Succeeded())
    by_hand("DELETE FROM holdfast_jobs")
    with pytest.raises(Conflict, match=SOME_ID):
        store.enqueue(new(id=SOME_ID))
    with pytest.raises(Conflict, match=SOME_ID):
        store.enqueue_many([new(), new(id=SOME_ID)])
    assert by_hand.count("holdfast_jobs") == 0


def test_an_enqueue_leaves_one_audit_row(store: SqlStore) -> None:
    job_id = enqueue(store)
    [event] = store.events(job_id)
    assert (event.seq, event.event, event.from_state, event.to_state) == (1, "enqueued", None, "pending")
    assert (event.attempt, event.worker, event.lease, event.at) == (0, None, None, store.job(job_id).updated_at)


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(values=st.lists(json_values, min_size=1, max_size=3), bulk=st.booleans())
def test_any_payload_comes_back_as_it_went_in(store: SqlStore, values: list[Any], bulk: bool) -> None:
    payload = {"values": values}
    answers = store.enqueue_many([new("echo", payload=payload)] * (20 if bulk else 1))
    assert repr(store.job(answers[0].id).payload) == repr(payload)
    claimed = store.claim("ann", len(answers))
    assert repr(claimed[0].payload) == repr(payload)
    settle_well(store, claimed[0], Succeeded(values))
    job = store.job(claimed[0].job_id)
    assert repr(job.result) == repr(values)
    assert job.spec_hash == spec_hash("echo", None, job.payload)
