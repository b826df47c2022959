"""A heartbeat renews a lease and nothing else. The token decides, not the clock."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.answers import Beat, Reason, Status
from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import beat, claim, claim_ids, enqueue_many, lose_lease, postgres_later, settle_well, start

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_a_heartbeat_extends_the_lease(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, lease_seconds=30)
    clock.move(20)
    [answer] = store.heartbeat([beat(claimed)])
    assert (answer.status, answer.cancel, answer.reason) == (Status.APPLIED, False, None)
    assert answer.lease_expires_at == clock.now() + timedelta(seconds=30)
    assert answer.lease_seconds == 30.0
    job = store.job(claimed.job_id)
    assert (job.lease_expires_at, job.heartbeat_at) == (answer.lease_expires_at, clock.now())


def test_a_heartbeat_is_no_transition(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    before, log = store.job(claimed.job_id), store.events(claimed.job_id)
    clock.move(20)
    store.heartbeat([beat(claimed, progress={"done": 1})])
    after = store.job(claimed.job_id)
    assert (after.updated_at, after.seq, after.attempt, after.transition) == (
        before.updated_at,
        before.seq,
        before.attempt,
        before.transition,
    )
    assert store.events(claimed.job_id) == log


def test_heartbeats_keep_a_job_alive_for_as_long_as_they_come(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, lease_seconds=30)
    for _ in range(10):
        clock.move(29)
        store.reap("reaper", period=0)
        assert store.heartbeat([beat(claimed)])[0].status is Status.APPLIED
    assert store.job(claimed.job_id).crashes == 0


@pytest.mark.parametrize("progress", [{"done": 3, "total": 10, "note": "ü"}, [1, 2], "half", 0, False, 0.5])
def test_progress_is_kept(store: SqlStore, progress: Any) -> None:
    claimed = start(store)
    store.heartbeat([beat(claimed, progress=progress)])
    assert store.job(claimed.job_id).progress == progress
    store.heartbeat([beat(claimed)])
    assert store.job(claimed.job_id).progress == progress, "no news leaves the last news"


@pytest.mark.parametrize(
    "progress", [float("nan"), {1: 2}, {1, 2}, "a\x00b", {"x": "y" * 5_000}], ids=["NaN", "keys", "set", "NUL", "5 kB"]
)
@postgres_later
def test_progress_that_cannot_be_stored_is_refused(store: SqlStore, clock: Clock, progress: Any) -> None:
    claimed = start(store)
    before = store.job(claimed.job_id)
    clock.move(5)
    with pytest.raises(InvalidInput, match="progress"):
        store.heartbeat([beat(claimed, progress=progress)])
    assert store.job(claimed.job_id) == before


def test_the_worker_is_told_of_a_cancel(store: SqlStore) -> None:
    stopped, kept = start(store), start(store)
    store.cancel([stopped.job_id])
    answers = store.heartbeat([beat(stopped), beat(kept)])
    assert [(answer.status, answer.cancel) for answer in answers] == [(Status.APPLIED, True), (Status.APPLIED, False)]


def test_a_late_heartbeat_with_the_current_token_is_accepted(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, lease_seconds=10)
    clock.move(1_000)
    [answer] = store.heartbeat([beat(claimed)])
    assert answer.status is Status.APPLIED
    assert answer.lease_expires_at == clock.now() + timedelta(seconds=10)


def test_no_beats_are_no_work(store: SqlStore) -> None:
    assert store.heartbeat([]) == []


def test_a_zombie_s_heartbeat_is_refused_and_kept_as_evidence(store: SqlStore, clock: Clock) -> None:
    zombie = start(store)
    lose_lease(store, clock, zombie)
    holder = claim(store, "bob")
    before = store.job(zombie.job_id)
    clock.move(5)
    for count in (1, 2, 3):
        [answer] = store.heartbeat([beat(zombie, progress={"fake": True})])
        assert (answer.status, answer.reason, answer.cancel) == (Status.REFUSED, Reason.LEASE_LOST, False)
        [refusal] = store.refusals(zombie.job_id)
        assert (refusal.verb, refusal.reason, refusal.attempt, refusal.worker) == ("heartbeat", "lease_lost", 1, "ann")
        assert refusal.count == count
    assert store.job(zombie.job_id) == before
    assert settle_well(store, holder, Succeeded()).state is State.SUCCEEDED


def test_forged_heartbeats_are_refused(store: SqlStore, clock: Clock) -> None:
    first, second = start(store), start(store)
    clock.move(5)
    before = [store.job(first.job_id), store.job(second.job_id)]
    forged = {
        "another's token": (Beat(first.job_id, 1, second.lease_token, "eve"), Reason.UNKNOWN_LEASE),
        "no token": (Beat(first.job_id, 1, "", "eve"), Reason.UNKNOWN_LEASE),
        "the digest instead of the token": (Beat(first.job_id, 1, _digest(store, first.job_id), "eve"), None),
        "a token that is no text": (Beat(first.job_id, 1, "\ud800", "eve"), Reason.UNKNOWN_LEASE),
        "another attempt": (Beat(first.job_id, 2, first.lease_token, "eve"), Reason.UNKNOWN_LEASE),
        "attempt 0": (Beat(first.job_id, 0, first.lease_token, "eve"), Reason.UNKNOWN_LEASE),
        "another job": (Beat(second.job_id, 1, first.lease_token, "eve"), Reason.UNKNOWN_LEASE),
        "no such job": (Beat(UNKNOWN, 1, first.lease_token, "eve"), Reason.UNKNOWN_JOB),
    }
    for name, (fake, reason) in forged.items():
        [answer] = store.heartbeat([fake])
        assert (answer.status, answer.reason) == (Status.REFUSED, reason or Reason.UNKNOWN_LEASE), name
    assert [store.job(first.job_id), store.job(second.job_id)] == before
    assert {refusal.worker for refusal in store.refusals()} == {"eve"}
    assert sum(refusal.count for refusal in store.refusals()) == len(forged)


def _digest(store: SqlStore, job_id: str) -> str:
    digest = store.events(job_id)[-1].lease
    assert digest is not None
    return digest


def test_a_finished_job_is_not_renewed(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, Released())
    assert store.heartbeat([beat(claimed)])[0].reason is Reason.LEASE_LOST
    assert store.job(claimed.job_id).lease_expires_at is None


def test_a_mixed_batch_is_answered_job_by_job_in_order(store: SqlStore, clock: Clock) -> None:
    enqueue_many(store, 6)
    good = store.claim("ann", 6)
    settle_well(store, good[2], Succeeded())
    store.cancel([good[4].job_id])
    clock.move(10)
    beats = [beat(claimed) for claimed in reversed(good)]
    beats.insert(3, Beat(UNKNOWN, 1, "forged", "eve"))
    beats.insert(0, Beat(good[0].job_id, 7, good[0].lease_token, "eve"))
    answers = store.heartbeat(beats)
    assert [answer.job_id for answer in answers] == [one.job_id for one in beats]
    applied, refused = Status.APPLIED, Status.REFUSED
    statuses = [answer.status for answer in answers[1:]]
    assert statuses == [applied, applied, applied, refused, refused, applied, applied]
    assert [answer.cancel for answer in answers[1:]] == [False, True, False, False, False, False, False]
    for number in (0, 1, 3, 4, 5):
        assert store.job(good[number].job_id).lease_expires_at == clock.now() + timedelta(seconds=60)


def test_a_zombie_and_the_holder_in_one_batch_are_told_apart(store: SqlStore, clock: Clock) -> None:
    """A worker that got its own lost job again beats for both of its runs in one statement."""
    zombie = start(store)
    lose_lease(store, clock, zombie)
    holder = claim(store, "ann")
    clock.move(5)
    for order in ([zombie, holder], [holder, zombie]):
        answers = store.heartbeat([beat(one, progress={"attempt": one.attempt}) for one in order])
        statuses = {one.attempt: answer.status for one, answer in zip(order, answers, strict=True)}
        assert statuses == {1: Status.REFUSED, 2: Status.APPLIED}
        assert store.job(holder.job_id).progress == {"attempt": 2}
    [refusal] = store.refusals(zombie.job_id)
    assert (refusal.attempt, refusal.count) == (1, 2)


def test_the_same_beat_twice_in_one_batch_is_one_renewal(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    clock.move(5)
    answers = store.heartbeat([beat(claimed), beat(claimed)])
    assert [answer.status for answer in answers] == [Status.APPLIED, Status.APPLIED]
    assert store.refusals() == []


@pytest.mark.parametrize("attempt", [-1, 2**31, True, 1.0, None])
@postgres_later
def test_an_attempt_that_cannot_be_is_refused(store: SqlStore, attempt: Any) -> None:
    claimed = start(store)
    with pytest.raises(InvalidInput, match="attempt"):
        store.heartbeat([Beat(claimed.job_id, attempt, claimed.lease_token)])


@pytest.mark.parametrize("worker", ["a\x00b", "\ud800", "w" * 1_000, None], ids=["NUL", "surrogate", "long", "none"])
def test_a_refused_beat_is_kept_whatever_its_worker_calls_itself(store: SqlStore, worker: str | None) -> None:
    claimed = start(store)
    [answer] = store.heartbeat([Beat(claimed.job_id, 1, "forged", worker)])
    assert answer.status is Status.REFUSED
    assert len(store.refusals(claimed.job_id)) == 1


@on_postgres
def test_a_locked_row_is_busy_and_never_lost(store: SqlStore, by_hand: ByHand) -> None:
    locked, free = start(store), start(store)
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR UPDATE", id=locked.job_id)
        answers = store.heartbeat([beat(locked), beat(free)])
        assert [answer.status for answer in answers] == [Status.BUSY, Status.APPLIED]
    assert store.heartbeat([beat(locked)])[0].status is Status.APPLIED
    assert store.refusals() == []


def test_many_leases_are_renewed_at_once(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    enqueue_many(store, 1_000)
    claims = store.claim("ann", 1_000)
    clock.move(30)
    answers = store.heartbeat([beat(claimed) for claimed in claims])
    assert {answer.status for answer in answers} == {Status.APPLIED}
    assert {answer.lease_expires_at for answer in answers} == {clock.now() + timedelta(seconds=60)}
    assert by_hand.count("holdfast_events") == 2_000
    assert claim_ids(store) == []
