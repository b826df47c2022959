"""Uniqueness: one active job per task and key. Reuse: a young success instead of a second run."""

from typing import Any

import pytest

from holdfast import App
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import ACTIVE, TERMINAL, State
from holdfast.domain.outcome import Succeeded
from holdfast.domain.schedule import Declaration, Tick
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import HOPELESS, claim_this, enqueue, history, job_in, new, settle_well, start


def test_the_default_key_is_the_spec(store: SqlStore) -> None:
    first = store.enqueue(new(payload={"a": 1, "b": 2.0}, unique=True))
    assert store.enqueue(new(payload={"b": 2, "a": 1}, unique=True, queue="other", priority=9)) == Enqueued(
        first.id, False, State.PENDING
    )
    assert store.enqueue(new(payload={"a": 2}, unique=True)).created
    assert store.enqueue(new(payload={"a": 1, "b": 2}, version="2", unique=True)).created
    assert store.job(first.id).unique_key == store.job(first.id).spec_hash
    assert store.job(first.id).queue == "default"


def test_a_key_of_one_s_own(store: SqlStore) -> None:
    first = store.enqueue(new(payload={"a": 1}, unique_key="customer-7"))
    again = store.enqueue(new(payload={"a": 2}, unique_key="customer-7"))
    assert again == Enqueued(first.id, False, State.PENDING)
    assert store.job(first.id).payload == {"a": 1}
    assert store.enqueue(new(payload={"a": 1}, unique_key="customer-8")).created
    assert store.enqueue(new(payload={"a": 1})).created, "who does not ask for uniqueness is not held to it"


def test_keys_are_each_task_s_own(store: SqlStore) -> None:
    assert store.enqueue(new("one", unique_key="k")).created
    assert store.enqueue(new("two", unique_key="k")).created
    assert not store.enqueue(new("one", unique_key="k")).created


@pytest.mark.parametrize("state", ACTIVE)
def test_an_active_job_holds_its_key(store: SqlStore, state: State) -> None:
    job_id = job_in(store, state, unique_key="k")
    assert store.enqueue(new(unique_key="k")) == Enqueued(job_id, False, state)


@pytest.mark.parametrize("state", TERMINAL)
def test_a_finished_job_frees_its_key(store: SqlStore, state: State) -> None:
    job_id = job_in(store, state, unique_key="k")
    answer = store.enqueue(new(unique_key="k"))
    assert answer.created
    assert answer.id != job_id


def test_duplicates_inside_one_batch(store: SqlStore, by_hand: ByHand) -> None:
    held = enqueue(store, unique_key="held")
    keys = ["x", "held", "y", "x", "x", "y"]
    answers = store.enqueue_many([new(payload={"n": n}, unique_key=key) for n, key in enumerate(keys)])
    assert [answer.created for answer in answers] == [True, False, True, False, False, False]
    assert answers[1].id == held
    assert answers[0].id == answers[3].id == answers[4].id
    assert answers[2].id == answers[5].id
    assert store.job(answers[0].id).payload == {"n": 0}
    assert by_hand.count("holdfast_jobs") == 3


def test_unique_and_plain_jobs_mix_in_one_batch(store: SqlStore, by_hand: ByHand) -> None:
    jobs = [new(payload={"n": n}, unique=n % 2 == 0) for n in range(100)]
    assert all(answer.created for answer in store.enqueue_many(jobs))
    again = store.enqueue_many(jobs)
    assert [answer.created for answer in again] == [n % 2 == 1 for n in range(100)]
    assert by_hand.count("holdfast_jobs") == 150


def test_a_large_batch_of_unique_jobs_finds_all_its_holders(store: SqlStore, by_hand: ByHand) -> None:
    jobs = [new(payload={"n": n}, unique=True) for n in range(5_100)]
    first = store.enqueue_many(jobs)
    again = store.enqueue_many(jobs)
    assert [answer.id for answer in again] == [answer.id for answer in first]
    assert not any(answer.created for answer in again)
    assert by_hand.count("holdfast_events") == 5_100


def test_an_id_and_a_key_together(store: SqlStore) -> None:
    held = enqueue(store, unique_key="k")
    wanted = new(unique_key="k", id="01890a5d-ac96-774b-bcce-b302099a8057")
    assert store.enqueue(wanted) == Enqueued(held, False, State.PENDING)
    settle_well(store, store.claim("ann")[0], Succeeded())
    assert store.enqueue(wanted) == Enqueued(str(wanted.id), True, State.PENDING)
    assert store.enqueue(wanted) == Enqueued(str(wanted.id), False, State.PENDING)


def test_a_taken_key_leaves_no_trace(store: SqlStore, by_hand: ByHand) -> None:
    job_id = enqueue(store, unique_key="k")
    before = by_hand.everything()
    store.enqueue(new(unique_key="k"))
    assert by_hand.everything() == before
    assert history(store, job_id) == ["enqueued"]


# Reuse


def reusing(seconds: float, **options: Any) -> NewJob:
    return new(payload={"a": 1}, reuse_seconds=seconds, **options)


def test_a_young_success_is_returned_instead_of_a_second_run(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, payload={"a": 1})
    settle_well(store, claimed, Succeeded(42))
    clock.move(59)
    assert store.enqueue(reusing(60)) == Enqueued(claimed.job_id, False, State.SUCCEEDED)
    clock.move(2)
    assert store.enqueue(reusing(60)).created, "that success is too old by now"


def test_the_youngest_success_is_the_one_reused(store: SqlStore, clock: Clock) -> None:
    jobs = [start(store, payload={"a": 1}) for _ in range(3)]
    for claimed in (jobs[1], jobs[2], jobs[0]):
        clock.move(1)
        settle_well(store, claimed, Succeeded())
    assert store.enqueue(reusing(3600)).id == jobs[0].job_id


def test_only_a_success_of_the_same_spec_is_reused(store: SqlStore) -> None:
    settle_well(store, start(store, payload={"a": 2}), Succeeded())
    settle_well(store, start(store, "other", payload={"a": 1}), Succeeded())
    settle_well(store, start(store, payload={"a": 1}, version="2"), Succeeded())
    settle_well(store, start(store, payload={"a": 1}), HOPELESS)
    job_in(store, State.CANCELLED, payload={"a": 1})
    start(store, payload={"a": 1})
    assert store.enqueue(reusing(3600)).created


def test_reuse_in_a_batch_is_each_job_s_own(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, payload={"a": 1})
    settle_well(store, claimed, Succeeded())
    clock.move(10)
    answers = store.enqueue_many([reusing(60), new(payload={"a": 1}), reusing(5), reusing(60)])
    assert [answer.created for answer in answers] == [False, True, True, False]
    assert answers[0].id == answers[3].id == claimed.job_id


def test_reuse_goes_before_uniqueness(store: SqlStore) -> None:
    claimed = start(store, payload={"a": 1})
    settle_well(store, claimed, Succeeded())
    active = enqueue(store, payload={"a": 1}, unique=True)
    assert store.enqueue(reusing(60, unique=True)).id == claimed.job_id
    assert store.enqueue(new(payload={"a": 1}, unique=True)).id == active


def test_equal_specs_of_one_batch_are_not_each_other_s_success(store: SqlStore) -> None:
    """Reuse is about what has been done; who wants one job of those in one batch asks for uniqueness, too."""
    assert [answer.created for answer in store.enqueue_many([reusing(60), reusing(60)])] == [True, True]
    both = store.enqueue_many([reusing(60, unique=True), reusing(60, unique=True), reusing(60, unique=True)])
    assert [answer.created for answer in both] == [True, False, False]
    assert len({answer.id for answer in both}) == 1


def test_a_batch_that_reuses_some_and_finds_some_and_makes_the_rest(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store, payload={"a": 1})
    settle_well(store, claimed, Succeeded())
    held = enqueue(store, payload={"a": 2}, unique=True)
    wanted = [new(payload={"a": n % 4}, unique=True, reuse_seconds=60) for n in range(8)]
    answers = store.enqueue_many(wanted)
    assert [answer.created for answer in answers] == [True, False, False, True, False, False, False, False]
    assert [answer.state for answer in answers[:4]] == ["pending", "succeeded", "pending", "pending"]
    assert (answers[1].id, answers[2].id) == (claimed.job_id, held)
    assert [answer.id for answer in answers[4:]] == [answer.id for answer in answers[:4]]
    assert by_hand.count("holdfast_jobs") == 4


def test_a_success_that_is_reused_hands_over_its_result(store: SqlStore, database_url: str) -> None:
    app = App(database_url)
    task = app.command("add", ["true"], version=2).using(reuse="1h", unique=True)
    settle_well(store, start(store, payload={"a": 1}, version="2"), Succeeded({"sum": 3}))
    for handle in (task.enqueue(a=1), *task.enqueue_many([{"a": 1}, {"a": 1.0}])):
        assert (handle.created, handle.state, handle.result(timeout=0)) == (False, State.SUCCEEDED, {"sum": 3})
    assert task.enqueue(a=2).created
    assert app.command("other", ["true"]).using(reuse="1h").enqueue(a=1).created
    app.close()


def test_a_schedule_reuses_and_is_unique_like_any_other(store: SqlStore, clock: Clock) -> None:
    job = {"payload": {"a": 1}, "unique": True, "reuse_seconds": 900.0}
    declared = [Declaration(name="sums", task="add", every_seconds=600.0, job=job)]
    assert store.announce_schedules(declared) == ()

    def fire() -> Tick:
        clock.move(600)
        fired = store.fire_schedules("ann")
        assert fired.failures == ()
        return fired.ticks[0]

    first = fire()
    active = fire()
    assert (active.outcome, active.job_id) == ("existing", first.job_id), "it is still there"
    settle_well(store, claim_this(store, str(first.job_id)), Succeeded(3))
    young = fire()
    assert (young.outcome, young.job_id) == ("existing", first.job_id), "it has succeeded ten minutes ago"
    old = fire()
    assert old.outcome == "fired", "twenty minutes are more than fifteen"
    now = store.run_schedule_now("sums")
    assert (now.created, now.id) == (False, old.job_id)


def test_a_schedule_of_an_app_says_so_in_its_declaration(store: SqlStore, database_url: str, clock: Clock) -> None:
    app = App(database_url)
    app.schedule(every="10m", name="sums", kwargs={"a": 1})(
        app.command("add", ["true"], version=2).using(unique_key="k", reuse="1h")
    )
    assert store.announce_schedules(app.declarations()) == ()
    settle_well(store, start(store, payload={"a": 1}, version="2"), Succeeded(3))
    clock.move(601)
    [tick] = store.fire_schedules("ann").ticks
    assert tick.outcome == "existing"
    assert store.job(str(tick.job_id)).result == 3
    clock.move(3600)
    assert store.fire_schedules("ann").ticks[0].outcome == "fired", "an hour later it is too old"
    assert [job.unique_key for job in store.jobs(states=[State.PENDING]).items] == ["k"]
    app.close()
