"""The decision about an ending is pure: the same standing and the same ending, the same transition."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.lifecycle import Charge, Event, State, find_move
from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Ending,
    Failed,
    JobError,
    LeaseLost,
    Released,
    Snoozed,
    Succeeded,
)
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.settle import Standing, Transition, cancelled_instead, settle

EXACT = RetryPolicy(jitter=0.0)
ERROR = JobError("boom", "it broke")
PERMANENT = JobError("bad", "never", retryable=False)


def standing(**values: Any) -> Standing:
    return Standing(**{"retry": EXACT, **values})


@pytest.mark.parametrize(
    ("ending", "event", "state"),
    [
        (Succeeded(1), Event.SUCCEEDED, State.SUCCEEDED),
        (Failed(ERROR), Event.RETRY_SCHEDULED, State.RETRYABLE),
        (Failed(PERMANENT), Event.FAILED, State.FAILED),
        (Crashed("gone"), Event.CRASHED, State.RETRYABLE),
        (LeaseLost(), Event.LEASE_LOST, State.PENDING),
        (Released(), Event.RELEASED, State.PENDING),
        (Snoozed(5), Event.SNOOZED, State.PENDING),
        (Cancelled(), Event.CANCELLED, State.CANCELLED),
    ],
)
def test_where_each_ending_leads(ending: Ending, event: Event, state: State) -> None:
    transition = settle(standing(), ending)
    assert (transition.event, transition.state) == (event, state)


@pytest.mark.parametrize(("failures", "delay"), [(0, 10.0), (1, 20.0), (2, 40.0), (3, 80.0), (20, 86_400.0)])
def test_an_error_waits_longer_each_time(failures: int, delay: float) -> None:
    transition = settle(standing(failures=failures, max_attempts=99), Failed(ERROR))
    assert (transition.delay_seconds, transition.failures, transition.crashes) == (delay, 1, 0)
    assert transition.detail == {"delay_seconds": delay}


@pytest.mark.parametrize(("crashes", "delay"), [(0, 0.0), (1, 10.0), (2, 20.0), (3, 40.0)])
@pytest.mark.parametrize("ending", [Crashed("gone"), LeaseLost()], ids=["crashed", "lease lost"])
def test_the_first_crash_restarts_at_once_and_the_next_wait(ending: Ending, crashes: int, delay: float) -> None:
    transition = settle(standing(crashes=crashes, max_attempts=99, max_crashes=99), ending)
    assert (transition.delay_seconds, transition.failures, transition.crashes) == (delay, 0, 1)


@pytest.mark.parametrize(
    ("failures", "crashes", "max_attempts", "state"),
    [
        (0, 0, 1, State.FAILED),
        (0, 0, 2, State.RETRYABLE),
        (1, 0, 2, State.FAILED),
        (1, 0, 3, State.RETRYABLE),
        (2, 0, 3, State.FAILED),
        (0, 2, 3, State.FAILED),
        (1, 1, 3, State.FAILED),
        (1, 1, 4, State.RETRYABLE),
        (9, 9, 3, State.FAILED),
    ],
)
def test_max_attempts_bounds_failures_and_crashes_together(
    failures: int, crashes: int, max_attempts: int, state: State
) -> None:
    job = standing(failures=failures, crashes=crashes, max_attempts=max_attempts, max_crashes=99)
    for ending, reason in ((Failed(ERROR), "max_attempts"), (Crashed("gone"), "worker_lost")):
        transition = settle(job, ending)
        assert transition.state is state
        assert (transition.detail.get("reason") == reason) == (state is State.FAILED)


@pytest.mark.parametrize(("crashes", "max_crashes", "dead"), [(0, 1, True), (0, 2, False), (1, 2, True), (2, 3, True)])
@pytest.mark.parametrize("ending", [Crashed("gone"), LeaseLost()], ids=["crashed", "lease lost"])
def test_max_crashes_bounds_the_crashes(ending: Ending, crashes: int, max_crashes: int, dead: bool) -> None:
    transition = settle(standing(crashes=crashes, max_attempts=99, max_crashes=max_crashes), ending)
    assert (transition.state is State.FAILED) == dead
    if dead:
        assert (transition.event, transition.crashes, transition.failures) == (Event.FAILED, 1, 0)
        assert transition.error is not None
        assert (transition.error.code, transition.error.retryable) == ("worker_lost", False)
        assert transition.detail["reason"] == "worker_lost"
        assert transition.delay_seconds is None


def test_a_permanent_error_spends_no_budget_that_is_left() -> None:
    transition = settle(standing(max_attempts=99), Failed(PERMANENT, exit_code=3))
    assert (transition.state, transition.failures) == (State.FAILED, 1)
    assert transition.detail == {"exit_code": 3, "reason": "permanent"}


@pytest.mark.parametrize("ending", [Released("deploy"), Snoozed(30, "busy"), Succeeded()])
def test_what_is_nobody_s_fault_charges_nothing(ending: Ending) -> None:
    transition = settle(standing(failures=2, crashes=2, max_attempts=1, max_crashes=1), ending)
    assert (transition.failures, transition.crashes, transition.error) == (0, 0, None)
    assert transition.state is not State.FAILED


def test_a_snooze_waits_and_a_release_does_not() -> None:
    assert settle(standing(), Snoozed(30, "busy")) == Transition(
        Event.SNOOZED, State.PENDING, delay_seconds=30, detail={"reason": "busy", "delay_seconds": 30}
    )
    assert settle(standing(), Released("deploy")) == Transition(
        Event.RELEASED, State.PENDING, detail={"reason": "deploy"}
    )


@pytest.mark.parametrize(
    "ending",
    [Failed(ERROR), Failed(PERMANENT), Crashed("gone"), LeaseLost(), Released(), Snoozed(5), Cancelled()],
    ids=lambda ending: type(ending).__name__,
)
def test_once_a_cancel_is_requested_only_a_success_is_one(ending: Ending) -> None:
    transition = settle(standing(cancel_requested=True), ending)
    assert transition == cancelled_instead(ending)
    assert (transition.event, transition.state) == (Event.CANCELLED, State.CANCELLED)
    assert (transition.failures, transition.crashes) == (0, 0)
    assert transition.detail["instead_of"] == type(ending).__name__.lower()
    assert settle(standing(cancel_requested=True), Succeeded()).state is State.SUCCEEDED


def test_a_cancelled_failure_keeps_its_error() -> None:
    assert settle(standing(cancel_requested=True), Failed(ERROR)).error == ERROR


def test_jitter_places_the_delay() -> None:
    job = Standing(retry=RetryPolicy())
    assert [settle(job, Failed(ERROR), random).delay_seconds for random in (0.0, 0.5)] == [8.0, 10.0]


errors = st.builds(JobError, st.text(), st.text(), st.none() | st.text(), st.booleans())
endings: st.SearchStrategy[Ending] = st.one_of(
    st.builds(Succeeded),
    st.builds(Failed, errors),
    st.builds(Crashed, st.text()),
    st.builds(LeaseLost),
    st.builds(Released),
    st.builds(Snoozed, st.floats(0, 1e6)),
    st.builds(Cancelled),
)
standings = st.builds(
    Standing,
    failures=st.integers(0, 5),
    crashes=st.integers(0, 5),
    max_attempts=st.integers(1, 6),
    max_crashes=st.integers(1, 6),
    cancel_requested=st.booleans(),
)


@given(job=standings, ending=endings, random=st.floats(0, 1, exclude_max=True))
def test_every_decision_is_an_arrow_of_the_lifecycle_that_charges_what_the_table_says(
    job: Standing, ending: Ending, random: float
) -> None:
    transition = settle(job, ending, random)
    move = find_move(transition.event, State.RUNNING, transition.state)
    assert move is not None
    charged = (transition.failures, transition.crashes)
    allowed = {
        Charge.NOTHING: {(0, 0)},
        Charge.FAILURE: {(1, 0)},
        Charge.CRASH: {(0, 1)},
        Charge.FAILURE_OR_CRASH: {(1, 0), (0, 1)},
    }[move.charge]
    assert charged in allowed
    assert transition.delay_seconds is None or transition.delay_seconds >= 0


@given(job=standings, ending=endings)
def test_a_job_is_never_given_more_than_its_budget(job: Standing, ending: Ending) -> None:
    transition = settle(job, ending)
    if sum((transition.failures, transition.crashes)) and transition.state in (State.RETRYABLE, State.PENDING):
        spent = job.failures + job.crashes + transition.failures + transition.crashes
        assert spent < job.max_attempts
        assert job.crashes + transition.crashes < job.max_crashes or transition.crashes == 0
