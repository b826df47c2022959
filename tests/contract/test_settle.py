"""Settle: every outcome takes the job where the lifecycle says, charges what it says, and is recorded once."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.answers import Settled, Status
from holdfast.domain.digests import token_digest
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    JobError,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Usage,
)
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock, on_postgres, run
from tests.contract.steps import (
    BROKEN,
    EVERY_OUTCOME,
    EXACT,
    HOPELESS,
    KILLED,
    claim,
    claim_this,
    enqueue_many,
    history,
    postgres_later,
    report,
    settle,
    settle_well,
    start,
)

ENDS_IN = {
    "succeeded": State.SUCCEEDED,
    "retry_scheduled": State.RETRYABLE,
    "failed": State.FAILED,
    "crashed": State.RETRYABLE,
    "released": State.PENDING,
    "snoozed": State.PENDING,
    "cancelled": State.CANCELLED,
}
CHARGES = {"retry_scheduled": (1, 0), "failed": (1, 0), "crashed": (0, 1)}

each_outcome = pytest.mark.parametrize(("event", "outcome"), EVERY_OUTCOME.items(), ids=EVERY_OUTCOME.keys())


@each_outcome
def test_each_outcome_lands_where_the_lifecycle_says(
    store: SqlStore, clock: Clock, event: str, outcome: Outcome
) -> None:
    claimed = start(store)
    clock.move(5)
    answer = settle(store, claimed, outcome)
    assert answer == Settled(claimed.job_id, 1, Status.APPLIED, event, ENDS_IN[event])
    assert answer.ok
    job = store.job(claimed.job_id)
    assert (job.state, job.transition, job.seq, job.attempt) == (ENDS_IN[event], event, 3, 1)
    assert (job.failures, job.crashes) == CHARGES.get(event, (0, 0))
    assert (job.lease_owner, job.lease_expires_at) == (None, None)
    assert job.updated_at == clock.now()
    assert job.finished_at == (clock.now() if job.state in ("succeeded", "failed", "cancelled") else None)


@each_outcome
def test_each_outcome_leaves_one_audit_row(store: SqlStore, clock: Clock, event: str, outcome: Outcome) -> None:
    claimed = start(store)
    clock.move(5)
    settle_well(store, claimed, outcome)
    last = store.events(claimed.job_id)[-1]
    assert (last.seq, last.event, last.from_state, last.to_state) == (3, event, "running", str(ENDS_IN[event]))
    assert (last.attempt, last.worker, last.at) == (1, "ann", clock.now())
    assert last.lease == token_digest(claimed.lease_token)
    assert last.detail is not None
    assert len(last.detail["report"]) == 32


def test_every_outcome_mixed_in_one_call(store: SqlStore, by_hand: ByHand) -> None:
    outcomes = list(EVERY_OUTCOME.items()) * 5
    enqueue_many(store, len(outcomes))
    claims = store.claim("ann", len(outcomes))
    answers = store.settle([report(one, outcome) for one, (_, outcome) in zip(claims, outcomes, strict=True)])
    assert answers == [
        Settled(one.job_id, 1, Status.APPLIED, event, ENDS_IN[event])
        for one, (event, _) in zip(claims, outcomes, strict=True)
    ]
    for one, (event, _) in zip(claims, outcomes, strict=True):
        job = store.job(one.job_id)
        assert (job.state, (job.failures, job.crashes)) == (ENDS_IN[event], CHARGES.get(event, (0, 0)))
    assert by_hand.count("holdfast_events") == 3 * len(outcomes)


def test_no_reports_are_no_work(store: SqlStore) -> None:
    assert store.settle([]) == []


# What is kept


@pytest.mark.parametrize("result", [None, 0, False, "", "007", [], {}, {"a": [1.0, 2**60, None]}, "null", "ü\u2028"])
def test_a_result_comes_back_as_it_was(store: SqlStore, result: Any) -> None:
    claimed = start(store)
    settle_well(store, claimed, Succeeded(result))
    assert repr(store.job(claimed.job_id).result) == repr(result)


def test_a_reference_to_a_result_is_kept(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, Succeeded({"n": 1}, result_ref="s3://bucket/key"))
    job = store.job(claimed.job_id)
    assert (job.result, job.result_ref) == ({"n": 1}, "s3://bucket/key")


def test_the_last_error_is_kept(store: SqlStore) -> None:
    claimed = start(store)
    error = JobError("Timeout", "took too long", "Traceback …", retryable=True)
    settle_well(store, claimed, Failed(error, exit_code=3))
    assert store.job(claimed.job_id).last_error == error.to_json()
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert (detail["error"], detail["exit_code"]) == (error.to_json(), 3)


def test_usage_is_kept_with_the_attempt(store: SqlStore) -> None:
    claimed = start(store)
    store.settle([report(claimed, Succeeded(), usage=Usage(duration_ms=1234, cpu_ms=567, max_rss_kb=890))])
    [attempt] = store.attempts(claimed.job_id)
    assert (attempt.duration_ms, attempt.cpu_ms, attempt.max_rss_kb) == (1234, 567, 890)


HOSTILE = {"NUL": "a\x00b", "lone surrogate": "a\ud800b", "a megabyte": "x" * 1_000_000 + "end", "empty": ""}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(
    "failure",
    [lambda text: Failed(JobError(text, text, text)), lambda text: Crashed(text)],
    ids=["failed", "crashed"],
)
def test_an_error_is_never_lost_for_its_text(store: SqlStore, text: str, failure: Callable[[str], Outcome]) -> None:
    claimed = start(store)
    outcome = failure(text)
    assert settle(store, claimed, outcome).status is Status.APPLIED
    assert settle(store, claimed, outcome).status is Status.REPLAYED
    job = store.job(claimed.job_id)
    assert job.last_error is not None
    message = job.last_error["message"]
    assert message[:1] == text[:1]
    assert message.endswith(text[-3:].replace("\x00", "\ufffd").replace("\ud800", "?"))
    assert len(message) < 20_000
    assert store.attempts(claimed.job_id)[0].error is not None


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(
    "outcome",
    [lambda text: Cancelled(text), lambda text: Released(text), lambda text: Snoozed(5, text)],
    ids=["cancelled", "released", "snoozed"],
)
def test_a_reason_never_keeps_an_outcome_from_being_recorded(
    store: SqlStore, text: str, outcome: Callable[[str], Outcome]
) -> None:
    """A reason is user code's text as much as an error's message is."""
    claimed = start(store)
    assert settle(store, claimed, outcome(text)).status is Status.APPLIED
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert len(detail["reason"]) < 20_000


BAD_RESULTS: dict[str, Any] = {
    "NaN": float("nan"),
    "a set": {1, 2},
    "bytes": b"1",
    "NUL": "a\x00b",
    "a lone surrogate": ["\ud800"],
    "keys that are numbers": {1: 2},
    "over 256 KiB": "x" * 262_143,
    "a number of 5,000 digits": 10**5_000,
}


@pytest.mark.parametrize("result", BAD_RESULTS.values(), ids=BAD_RESULTS.keys())
@postgres_later
def test_a_result_that_cannot_be_stored_names_its_job_and_changes_nothing(
    store: SqlStore, by_hand: ByHand, result: Any
) -> None:
    good, bad = start(store), start(store)
    before = by_hand.everything()
    with pytest.raises(InvalidInput) as caught:
        store.settle([report(good, Succeeded(1)), report(bad, Succeeded(result))])
    assert bad.job_id in str(caught.value)
    assert by_hand.everything() == before
    assert settle_well(store, bad, HOPELESS).state is State.FAILED


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 1e12, None, True], ids=repr)
@postgres_later
def test_a_snooze_that_cannot_be_names_the_rule_and_changes_nothing(
    store: SqlStore, by_hand: ByHand, delay: Any
) -> None:
    claimed = start(store)
    before = by_hand.everything()
    with pytest.raises(InvalidInput, match="delay"):
        settle(store, claimed, Snoozed(delay))
    assert by_hand.everything() == before


@pytest.mark.parametrize(
    "figures",
    [
        {"usage": Usage(duration_ms=2**70)},
        {"usage": Usage(max_rss_kb=-(2**70))},
        {"outcome": Crashed("gone", exit_code=0xC0000005)},
        {"outcome": Crashed("gone", signal=2**40)},
        {"outcome": Failed(JobError("x", "y"), exit_code=2**40)},
    ],
    ids=["duration", "memory", "exit code of Windows", "signal", "exit code"],
)
def test_no_figure_can_make_the_attempts_unreadable(store: SqlStore, figures: dict[str, Any]) -> None:
    """Refused or stored, but never stored in such a way that the view fails from then on."""
    claimed = start(store)
    usual: dict[str, Any] = {"outcome": KILLED, **figures}
    with suppress(InvalidInput):
        store.settle([report(claimed, **usual)])
    assert len(store.attempts(claimed.job_id)) == 1


# Retries


def fail_again(store: SqlStore, clock: Clock, claimed: Claimed, outcome: Outcome = BROKEN) -> tuple[float, Claimed]:
    """Fail, wait exactly as long as the job must, and claim it again: how long that was."""
    settle_well(store, claimed, outcome)
    wait = (store.job(claimed.job_id).run_after - clock.now()).total_seconds()
    if wait > 0:
        clock.move(wait - 0.001)
        assert store.claim_job("ann", claimed.job_id) is None
        clock.move(0.001)
    return wait, claim_this(store, claimed.job_id)


def test_the_default_backoff_is_exact_without_jitter(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=20, retry=EXACT)
    waits = []
    for _ in range(16):
        wait, claimed = fail_again(store, clock, claimed)
        waits.append(wait)
    assert waits == [min(10.0 * 2**n, 86_400.0) for n in range(16)]
    detail = store.events(claimed.job_id)[2].detail
    assert detail is not None
    assert detail["delay_seconds"] == 10.0


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"kind": "linear", "base": 7, "jitter": 0}, [7, 14, 21, 28]),
        ({"kind": "fixed", "base": "1m", "jitter": 0}, [60, 60, 60, 60]),
        ({"kind": "exponential", "base": 3, "jitter": 0, "cap": 10}, [3, 6, 10, 10]),
        ({"kind": "fixed", "base": 0, "jitter": 0}, [0, 0, 0, 0]),
    ],
    ids=["linear", "fixed", "capped", "at once"],
)
@postgres_later
def test_other_policies_are_exact(store: SqlStore, clock: Clock, policy: dict[str, Any], expected: list[int]) -> None:
    claimed = start(store, max_attempts=20, retry=RetryPolicy.from_json(policy))
    waits = []
    for _ in expected:
        wait, claimed = fail_again(store, clock, claimed)
        waits.append(wait)
    assert waits == expected


def test_jitter_spreads_the_retries(store: SqlStore, clock: Clock) -> None:
    enqueue_many(store, 100)
    store.settle([report(claimed, BROKEN) for claimed in store.claim("ann", 100)])
    waits = [(job.run_after - clock.now()).total_seconds() for job in store.jobs(limit=100).items]
    assert all(8.0 <= wait <= 12.0 for wait in waits)
    assert len(set(waits)) > 50
    assert min(waits) < 9.0
    assert max(waits) > 11.0


def test_the_first_crash_restarts_at_once_and_then_backs_off(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=20, max_crashes=20, retry=EXACT)
    waits = []
    for _ in range(5):
        wait, claimed = fail_again(store, clock, claimed, KILLED)
        waits.append(wait)
    assert waits == [0, 10, 20, 40, 80]


def test_errors_and_crashes_back_off_apart(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=20, max_crashes=20, retry=EXACT)
    waits = []
    for outcome in (BROKEN, KILLED, BROKEN, KILLED, BROKEN):
        wait, claimed = fail_again(store, clock, claimed, outcome)
        waits.append(wait)
    assert waits == [10, 0, 20, 10, 40]


def test_snoozes_and_releases_are_free(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=2, max_crashes=1, retry=EXACT)
    for _ in range(10):
        _, claimed = fail_again(store, clock, claimed, Snoozed(30))
        _, claimed = fail_again(store, clock, claimed, Released())
    assert claimed.attempt == 21
    job = store.job(claimed.job_id)
    assert (job.failures, job.crashes) == (0, 0)
    settle_well(store, claimed, BROKEN)
    assert store.job(claimed.job_id).run_after == clock.now() + timedelta(seconds=10)


def test_snoozes_that_add_up_to_more_than_their_limit_end_the_job(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=5, retry=RetryPolicy(jitter=0.0, snooze_limit=100))
    neighbour = start(store)
    for _ in range(3):
        _, claimed = fail_again(store, clock, claimed, Snoozed(30))
    _, claimed = fail_again(store, clock, claimed)  # an error between them changes nothing
    _, claimed = fail_again(store, clock, claimed, Snoozed(10))  # exactly as much as it may
    together = store.settle([report(neighbour, Snoozed(1000)), report(claimed, Snoozed(30, "still building"))])
    assert [answer.event for answer in together] == ["snoozed", "failed"]
    job = store.job(claimed.job_id)
    assert (job.state, job.failures, job.crashes) == (State.FAILED, 2, 0)
    assert job.last_error == {
        "code": "snoozed_too_long",
        "message": (
            "it has put itself off for 2 min and asks for 30 s more (still building); its snooze_limit is 2 min"
        ),
        "stack": None,
        "retryable": False,
    }
    assert settle(store, claimed, Snoozed(30, "still building")).status is Status.REPLAYED

    store.requeue([claimed.job_id])
    claimed = claim_this(store, claimed.job_id)
    wait, claimed = fail_again(store, clock, claimed, Snoozed(100))  # a new life, a new budget
    assert wait == 100
    settle_well(store, claimed, Succeeded())


def test_a_snooze_typed_by_hand_counts_if_it_is_a_number(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    claimed = start(store, retry=RetryPolicy(snooze_limit=100))
    for said in ('{"delay_seconds": 60}', '{"delay_seconds": "soon"}', "{}"):
        by_hand(
            "UPDATE holdfast_jobs SET state = 'pending', transition = 'snoozed', seq = seq + 1, lease_token = NULL,"
            f" lease_owner = NULL, lease_expires_at = NULL, transition_detail = '{said}'"
        )
        claimed = claim_this(store, claimed.job_id)
    _, claimed = fail_again(store, clock, claimed, Snoozed(40))
    settle_well(store, claimed, Snoozed(1))
    assert store.job(claimed.job_id).state is State.FAILED


def test_a_snooze_of_nothing_is_due_at_once(store: SqlStore) -> None:
    claimed = start(store)
    settle_well(store, claimed, Snoozed(0))
    assert claim(store).job_id == claimed.job_id


# Budgets


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
@postgres_later
def test_max_attempts_bounds_the_errors(store: SqlStore, clock: Clock, budget: int) -> None:
    claimed = start(store, max_attempts=budget, retry=EXACT)
    for _ in range(budget - 1):
        _, claimed = fail_again(store, clock, claimed)
    answer = settle_well(store, claimed, BROKEN)
    assert (answer.event, answer.state) == ("failed", State.FAILED)
    job = store.job(claimed.job_id)
    assert (job.failures, job.crashes, job.attempt) == (budget, 0, budget)
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert detail["reason"] == "max_attempts"


@pytest.mark.parametrize("budget", [1, 2, 3])
@postgres_later
def test_max_crashes_bounds_the_crashes(store: SqlStore, clock: Clock, budget: int) -> None:
    claimed = start(store, max_attempts=100, max_crashes=budget, retry=EXACT)
    for _ in range(budget - 1):
        _, claimed = fail_again(store, clock, claimed, KILLED)
    assert settle_well(store, claimed, KILLED).event == "failed"
    job = store.job(claimed.job_id)
    assert (job.state, job.failures, job.crashes) == (State.FAILED, 0, budget)
    assert job.last_error == {
        "code": "worker_lost",
        "message": "killed by signal 9",
        "stack": None,
        "retryable": False,
    }
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert (detail["reason"], detail["signal"]) == ("worker_lost", 9)


def test_by_default_a_job_that_kills_its_worker_is_dead_after_three_crashes(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    _, claimed = fail_again(store, clock, claimed, KILLED)
    _, claimed = fail_again(store, clock, claimed, KILLED)
    assert settle_well(store, claimed, KILLED).state is State.FAILED


def test_max_attempts_bounds_the_sum_of_errors_and_crashes(store: SqlStore, clock: Clock) -> None:
    claimed = start(store, max_attempts=3, max_crashes=3, retry=EXACT)
    _, claimed = fail_again(store, clock, claimed, KILLED)
    _, claimed = fail_again(store, clock, claimed, BROKEN)
    assert settle_well(store, claimed, KILLED).state is State.FAILED
    job = store.job(claimed.job_id)
    assert (job.failures, job.crashes) == (1, 2)
    assert job.last_error is not None
    assert job.last_error["code"] == "worker_lost"


def test_a_permanent_error_fails_at_once(store: SqlStore) -> None:
    claimed = start(store, max_attempts=100)
    assert settle_well(store, claimed, HOPELESS).state is State.FAILED
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert detail["reason"] == "permanent"


# Cancelled meanwhile


@pytest.mark.parametrize(
    "outcome",
    [BROKEN, HOPELESS, KILLED, Released(), Snoozed(60), Cancelled()],
    ids=lambda outcome: type(outcome).__name__,
)
def test_once_a_cancel_is_requested_every_outcome_but_success_is_cancelled(
    store: SqlStore, clock: Clock, outcome: Outcome
) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    answer = settle(store, claimed, outcome)
    assert (answer.status, answer.event, answer.state) == (Status.APPLIED, "cancelled", State.CANCELLED)
    job = store.job(claimed.job_id)
    assert (job.failures, job.crashes, job.finished_at) == (0, 0, clock.now())
    assert history(store, claimed.job_id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]
    detail = store.events(claimed.job_id)[-1].detail
    assert detail is not None
    assert detail["instead_of"] == type(outcome).__name__.lower()
    assert settle(store, claimed, outcome).status is Status.REPLAYED


def test_a_success_wins_over_a_cancel(store: SqlStore) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    assert settle_well(store, claimed, Succeeded(7)).state is State.SUCCEEDED
    assert store.job(claimed.job_id).result == 7


def test_a_cancelled_batch_mixes_with_one_that_is_not(store: SqlStore) -> None:
    stopped, kept = start(store), start(store)
    store.cancel([stopped.job_id])
    answers = store.settle([report(stopped, Released()), report(kept, Released())])
    assert [answer.state for answer in answers] == [State.CANCELLED, State.PENDING]


# Late, and locked


@each_outcome
def test_a_late_report_with_the_current_token_is_accepted(
    store: SqlStore, clock: Clock, event: str, outcome: Outcome
) -> None:
    """Nobody else has the job: an outage charges nothing."""
    claimed = start(store)
    clock.move(100_000)
    answer = settle(store, claimed, outcome)
    assert (answer.status, answer.event) == (Status.APPLIED, event)


@on_postgres
def test_a_locked_row_is_busy_and_its_neighbours_are_settled(store: SqlStore, by_hand: ByHand) -> None:
    locked, free = start(store), start(store)
    with by_hand.engine.begin() as connection:
        run(connection, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR UPDATE", id=locked.job_id)
        answers = store.settle([report(locked, Succeeded()), report(free, BROKEN)])
        assert [answer.status for answer in answers] == [Status.BUSY, Status.APPLIED]
    assert settle(store, locked, Succeeded()).status is Status.APPLIED
    assert store.refusals() == []


def test_a_thousand_reports_at_once(store: SqlStore, by_hand: ByHand) -> None:
    enqueue_many(store, 1_000)
    claims = store.claim("ann", 1_000)
    outcomes: list[Outcome] = [Succeeded({"n": 1}), BROKEN, KILLED, Released()]
    answers = store.settle([report(claimed, outcomes[n % 4]) for n, claimed in enumerate(claims)])
    assert {answer.status for answer in answers} == {Status.APPLIED}
    assert by_hand.count("holdfast_events") == 3_000
