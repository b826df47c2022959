"""An attempt has exactly one recorded outcome: the same report again gets the same answer, any other is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.domain.answers import Reason, Settled, Status
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded, Usage
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import (
    BROKEN,
    EVERY_OUTCOME,
    HOPELESS,
    KILLED,
    beat,
    claim,
    claim_this,
    history,
    lose_lease,
    report,
    settle,
    settle_well,
    start,
)

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
VERBS = {
    "succeeded": "complete",
    "retry_scheduled": "fail",
    "failed": "fail",
    "crashed": "fail",
    "released": "release",
    "snoozed": "release",
    "cancelled": "fail",
}

each_outcome = pytest.mark.parametrize(("event", "outcome"), EVERY_OUTCOME.items(), ids=EVERY_OUTCOME.keys())


# Again


@each_outcome
def test_the_same_report_ten_times_is_one_outcome(store: SqlStore, event: str, outcome: Outcome) -> None:
    claimed = start(store)
    first = settle(store, claimed, outcome)
    after, log = store.job(claimed.job_id), store.events(claimed.job_id)
    for _ in range(10):
        again = settle(store, claimed, outcome)
        assert again == Settled(claimed.job_id, 1, Status.REPLAYED, event, first.state)
        assert again.ok
    assert store.job(claimed.job_id) == after
    assert store.events(claimed.job_id) == log
    assert store.refusals() == []


def move_on(store: SqlStore, clock: Clock, job_id: str) -> list[Callable[[], None]]:
    """What may happen to a job after its first attempt failed, step by step."""
    claims: list[Claimed] = []

    def claim_again() -> None:
        clock.move(13)
        claims.append(claim_this(store, job_id, "bob"))

    return [
        lambda: clock.move(5),
        claim_again,
        lambda: lose_lease(store, clock, claims[-1]),
        claim_again,
        lambda: _ended(store.settle([report(claims[-1], HOPELESS, worker="bob")])[0]),
        lambda: _requeued(store, job_id),
        claim_again,
        lambda: _ended(store.settle([report(claims[-1], Succeeded(), worker="bob")])[0]),
    ]


def _ended(answer: Settled) -> None:
    assert answer.status is Status.APPLIED


def _requeued(store: SqlStore, job_id: str) -> None:
    assert store.requeue([job_id])[0].ok


@pytest.mark.parametrize("outcome", [BROKEN, KILLED, Released(), Snoozed(1)], ids=lambda one: type(one).__name__)
def test_the_same_report_gets_the_same_answer_however_far_the_job_has_moved_on(
    store: SqlStore, by_hand: ByHand, clock: Clock, outcome: Outcome
) -> None:
    claimed = start(store, max_attempts=5, max_crashes=5)
    first = settle(store, claimed, outcome)
    expected = Settled(claimed.job_id, 1, Status.REPLAYED, first.event, first.state)
    for step in move_on(store, clock, claimed.job_id):
        step()
        log = store.events(claimed.job_id)
        assert settle(store, claimed, outcome) == expected
        assert store.events(claimed.job_id) == log
    by_hand("DELETE FROM holdfast_jobs")
    assert history(store, claimed.job_id)[-1] == "pruned"
    assert settle(store, claimed, outcome) == expected
    assert history(store, claimed.job_id).count(str(first.event)) == 1
    assert store.refusals() == []


def test_a_replay_is_known_by_what_it_says_not_by_who_measured_it(store: SqlStore) -> None:
    claimed = start(store)
    store.settle([report(claimed, Succeeded({"a": 1, "b": (1, 2)}), usage=Usage(duration_ms=5))])
    [again] = store.settle(
        [report(claimed, Succeeded({"b": [1, 2], "a": 1}), usage=Usage(duration_ms=9), worker="a proxy")]
    )
    assert again.status is Status.REPLAYED
    assert store.attempts(claimed.job_id)[0].duration_ms == 5


def test_the_same_report_twice_in_one_batch(store: SqlStore) -> None:
    claimed = start(store)
    answers = store.settle([report(claimed, BROKEN), report(claimed, BROKEN), report(claimed, BROKEN)])
    assert [answer.status for answer in answers] == [Status.APPLIED, Status.REPLAYED, Status.REPLAYED]
    assert store.job(claimed.job_id).failures == 1


def test_the_same_object_twice_in_one_batch(store: SqlStore) -> None:
    claimed = start(store)
    one = report(claimed, Succeeded())
    assert [answer.ok for answer in store.settle([one, one])] == [True, True]


def test_two_different_words_in_one_batch(store: SqlStore) -> None:
    claimed = start(store)
    answers = store.settle([report(claimed, Succeeded(1)), report(claimed, BROKEN)])
    assert [answer.status for answer in answers] == [Status.APPLIED, Status.REFUSED]
    assert answers[1].reason is Reason.CONFLICTING_REPORT
    assert store.job(claimed.job_id).state is State.SUCCEEDED


def test_an_earlier_attempt_s_word_does_not_hold_up_the_current_one_s(store: SqlStore, clock: Clock) -> None:
    """A worker that got its own lost job again may report both of its runs in one statement."""
    zombie = start(store)
    lose_lease(store, clock, zombie)
    holder = claim(store, "ann")
    answers = store.settle([report(zombie, Succeeded("old")), report(holder, Succeeded("new"))])
    assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
    assert store.job(holder.job_id).result == "new"


# Conflicting


@each_outcome
def test_another_word_about_the_same_attempt_is_refused(store: SqlStore, event: str, outcome: Outcome) -> None:
    claimed = start(store)
    settle_well(store, claimed, outcome)
    after, log = store.job(claimed.job_id), store.events(claimed.job_id)
    others: list[Outcome] = [one for name, one in EVERY_OUTCOME.items() if name != event]
    others += [Succeeded({"sum": 4}), Failed(JobError("boom", "it broke differently")), Cancelled("other"), Snoozed(31)]
    for other in others:
        answer = settle(store, claimed, other)
        assert (answer.status, answer.reason, answer.state) == (Status.REFUSED, Reason.CONFLICTING_REPORT, None)
        assert not answer.ok
    assert store.job(claimed.job_id) == after
    assert store.events(claimed.job_id) == log
    assert {refusal.reason for refusal in store.refusals(claimed.job_id)} == {"conflicting_report"}
    assert sum(refusal.count for refusal in store.refusals(claimed.job_id)) == len(others)


# Zombies


@each_outcome
def test_a_zombie_s_report_is_refused_changes_nothing_and_is_kept_as_evidence(
    store: SqlStore, clock: Clock, event: str, outcome: Outcome
) -> None:
    zombie = start(store)
    lose_lease(store, clock, zombie)
    for holder in (None, claim(store, "bob")):
        before, log = store.job(zombie.job_id), store.events(zombie.job_id)
        for _ in range(3):
            answer = settle(store, zombie, outcome)
            assert (answer.status, answer.reason) == (Status.REFUSED, Reason.LEASE_LOST)
        assert store.job(zombie.job_id) == before
        assert store.events(zombie.job_id) == log
        if holder is not None:
            assert settle_well(store, holder, Succeeded()).state is State.SUCCEEDED
    assert settle(store, zombie, outcome).reason is Reason.LEASE_LOST
    [refusal] = store.refusals(zombie.job_id)
    assert (refusal.attempt, refusal.verb, refusal.reason) == (1, VERBS[event], "lease_lost")
    assert (refusal.worker, refusal.count) == ("ann", 7)
    assert refusal.first_at <= refusal.last_at == clock.now()


def test_a_zombie_stays_one_after_its_job_was_pruned(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    zombie = start(store)
    lose_lease(store, clock, zombie)
    settle_well(store, claim(store, "bob"), Succeeded())
    by_hand("DELETE FROM holdfast_jobs")
    assert settle(store, zombie, Succeeded()).reason is Reason.LEASE_LOST
    by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=zombie.job_id)
    assert settle(store, zombie, Succeeded()).reason is Reason.UNKNOWN_JOB
    assert {refusal.reason: refusal.count for refusal in store.refusals()} == {"lease_lost": 1, "unknown_job": 1}


def test_refusals_are_counted_by_what_they_were(store: SqlStore, clock: Clock) -> None:
    zombie = start(store)
    lose_lease(store, clock, zombie)
    store.settle([report(zombie, Succeeded()), report(zombie, BROKEN), report(zombie, Released())])
    store.settle([report(zombie, Succeeded(), worker="eve"), report(zombie, Succeeded(), worker=None)])
    store.heartbeat([beat(zombie)])
    kept = {(refusal.verb, refusal.worker): refusal.count for refusal in store.refusals(zombie.job_id)}
    assert kept == {
        ("complete", "ann"): 1,
        ("fail", "ann"): 1,
        ("release", "ann"): 1,
        ("complete", "eve"): 1,
        ("complete", ""): 1,
        ("heartbeat", "ann"): 1,
    }
    assert {refusal.job_id for refusal in store.refusals()} == {zombie.job_id}
    assert store.refusals(UNKNOWN) == []


# Forgers


def forgeries(first: Claimed, second: Claimed) -> dict[str, tuple[Report, Reason]]:
    def forged(job_id: str, attempt: int, token: str) -> Report:
        return Report(job_id, attempt, token, Succeeded("stolen"), worker="eve")

    return {
        "another's token": (forged(first.job_id, 1, second.lease_token), Reason.UNKNOWN_LEASE),
        "no token": (forged(first.job_id, 1, ""), Reason.UNKNOWN_LEASE),
        "a token that is no text": (forged(first.job_id, 1, "\ud800"), Reason.UNKNOWN_LEASE),
        "a later attempt": (forged(first.job_id, 2, first.lease_token), Reason.UNKNOWN_LEASE),
        "attempt 0": (forged(first.job_id, 0, first.lease_token), Reason.UNKNOWN_LEASE),
        "another job": (forged(second.job_id, 1, first.lease_token), Reason.UNKNOWN_LEASE),
        "no such job": (forged(UNKNOWN, 1, first.lease_token), Reason.UNKNOWN_JOB),
    }


def test_forged_reports_are_refused(store: SqlStore) -> None:
    first, second = start(store), start(store)
    before = [store.job(first.job_id), store.job(second.job_id)]
    for name, (forged, reason) in forgeries(first, second).items():
        [answer] = store.settle([forged])
        assert (answer.status, answer.reason) == (Status.REFUSED, reason), name
    assert [store.job(first.job_id), store.job(second.job_id)] == before
    assert sum(refusal.count for refusal in store.refusals()) == 7


def test_a_forgery_among_good_reports_spoils_nothing(store: SqlStore) -> None:
    first, second = start(store), start(store)
    forged = [forgery for forgery, _ in forgeries(first, second).values() if forgery.job_id == UNKNOWN]
    answers = store.settle([report(first, Succeeded()), *forged, report(second, BROKEN)])
    assert [answer.status for answer in answers] == [Status.APPLIED, Status.REFUSED, Status.APPLIED]


def test_the_right_token_of_an_ended_lease_learns_nothing_by_asking_for_another_s(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, Succeeded())
    [answer] = store.settle([Report(claimed.job_id, 1, "forged", Succeeded(), worker="eve")])
    assert (answer.status, answer.reason, answer.state) == (Status.REFUSED, Reason.UNKNOWN_LEASE, None)


@pytest.mark.parametrize("worker", ["a\x00b", "\ud800", "w" * 1_000, None], ids=["NUL", "surrogate", "long", "none"])
def test_a_refused_report_is_kept_whatever_its_worker_calls_itself(store: SqlStore, worker: str | None) -> None:
    claimed = start(store)
    [answer] = store.settle([Report(claimed.job_id, 1, "forged", Succeeded(), worker=worker)])
    assert answer.status is Status.REFUSED
    assert len(store.refusals(claimed.job_id)) == 1


def test_only_the_current_lease_can_end_a_job_that_was_claimed_by_hand(store: SqlStore, by_hand: ByHand) -> None:
    """An operator's own lease has no token that a worker could have."""
    claimed = start(store)
    settle_well(store, claimed, Released())
    by_hand(
        "UPDATE holdfast_jobs SET state = 'running', lease_token = 'by hand', lease_expires_at = :far",
        far="2099-01-01T00:00:00.000000Z",
    )
    answers: list[Any] = store.settle([report(claimed, Succeeded()), Report(claimed.job_id, 2, "by hand", Succeeded())])
    assert [answer.status for answer in answers] == [Status.REFUSED, Status.REFUSED]
