"""Decide, purely, what an ending does to a job. The store applies the decision under the lease token.

Once a cancel is requested every outcome but success lands in `cancelled`. That flag can be raised by an operator
between the decision and the write, so the store repeats the test inside its statement; both use `cancelled_instead`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, assert_never

from holdfast.domain.durations import spoken
from holdfast.domain.lifecycle import Event, State
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
from holdfast.domain.retry import DEFAULT_RETRY, RetryPolicy

WORKER_LOST = "worker_lost"
SNOOZED_TOO_LONG = "snoozed_too_long"


@dataclass(frozen=True, slots=True)
class Standing:
    """The part of a running job that a decision depends on."""

    failures: int = 0
    crashes: int = 0
    max_attempts: int = 3
    max_crashes: int = 3
    retry: RetryPolicy = DEFAULT_RETRY
    cancel_requested: bool = False
    snoozed_seconds: float = 0.0  # since it was enqueued or requeued; read only where `retry` limits it


@dataclass(frozen=True, slots=True)
class Transition:
    event: Event
    state: State
    failures: int = 0  # charged by this transition, not the total
    crashes: int = 0
    delay_seconds: float | None = None  # from the store's clock; None leaves run_after alone
    error: JobError | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def settle(job: Standing, ending: Ending, random: float = 0.5) -> Transition:
    """The transition this ending causes. `random` in [0, 1) places a backoff within its jitter."""
    if job.cancel_requested and not isinstance(ending, Succeeded):
        return cancelled_instead(ending)
    match ending:
        case Succeeded():
            return Transition(Event.SUCCEEDED, State.SUCCEEDED)
        case Failed(error=error, exit_code=exit_code):
            return _after_failure(job, error, _known(exit_code=exit_code), random)
        case Crashed(message=message, exit_code=exit_code, signal=signal):
            error = JobError("crashed", message)
            return _after_crash(
                job, Event.CRASHED, State.RETRYABLE, error, _known(exit_code=exit_code, signal=signal), random
            )
        case LeaseLost():
            error = JobError(WORKER_LOST, "the lease expired: the worker died, hung or lost its way to the store")
            return _after_crash(job, Event.LEASE_LOST, State.PENDING, error, {}, random)
        case Released(reason=reason):
            return Transition(Event.RELEASED, State.PENDING, detail={"reason": reason})
        case Snoozed():
            return _after_snooze(job, ending)
        case Cancelled(reason=reason):
            return Transition(Event.CANCELLED, State.CANCELLED, detail={"reason": reason})
        case _ as never:
            assert_never(never)


def cancelled_instead(ending: Ending) -> Transition:
    detail: dict[str, Any] = {"reason": "cancel requested", "instead_of": type(ending).__name__.lower()}
    error = ending.error if isinstance(ending, Failed) else None
    return Transition(Event.CANCELLED, State.CANCELLED, error=error, detail=detail)


def _after_failure(job: Standing, error: JobError, detail: dict[str, Any], random: float) -> Transition:
    if not error.retryable:
        return Transition(Event.FAILED, State.FAILED, failures=1, error=error, detail={**detail, "reason": "permanent"})
    if job.failures + job.crashes + 1 >= job.max_attempts:
        return Transition(
            Event.FAILED, State.FAILED, failures=1, error=error, detail={**detail, "reason": "max_attempts"}
        )
    delay = job.retry.delay(job.failures + 1, random)
    detail = {**detail, "delay_seconds": round(delay, 3)}
    return Transition(
        Event.RETRY_SCHEDULED, State.RETRYABLE, failures=1, delay_seconds=delay, error=error, detail=detail
    )


def _after_snooze(job: Standing, ending: Snoozed) -> Transition:
    """Free, however often; but a job that only ever puts itself off would be neither done nor dead."""
    limit, total = job.retry.snooze_limit, job.snoozed_seconds + ending.delay_seconds
    if limit is not None and total > limit:
        message = (
            f"it has put itself off for {spoken(job.snoozed_seconds)} and asks for {spoken(ending.delay_seconds)} more"
            f" ({ending.reason}); its snooze_limit is {spoken(limit)}"
        )
        error = JobError(SNOOZED_TOO_LONG, message, retryable=False)
        return Transition(Event.FAILED, State.FAILED, failures=1, error=error, detail={"reason": SNOOZED_TOO_LONG})
    detail: dict[str, Any] = {"reason": ending.reason, "delay_seconds": ending.delay_seconds}
    if ending.throttled:
        detail["throttled"] = True
    return Transition(Event.SNOOZED, State.PENDING, delay_seconds=ending.delay_seconds, detail=detail)


def _after_crash(
    job: Standing, event: Event, state: State, error: JobError, detail: dict[str, Any], random: float
) -> Transition:
    crashes = job.crashes + 1
    if crashes >= job.max_crashes or job.failures + crashes >= job.max_attempts:
        dead = JobError(WORKER_LOST, error.message, retryable=False)
        return Transition(Event.FAILED, State.FAILED, crashes=1, error=dead, detail={**detail, "reason": WORKER_LOST})
    # The first crash restarts at once: most are deploys gone wrong or a machine that died. After that, back off,
    # or one job that kills its worker keeps the whole fleet restarting.
    delay = 0.0 if crashes == 1 else job.retry.delay(crashes - 1, random)
    detail = {**detail, "delay_seconds": round(delay, 3)}
    return Transition(event, state, crashes=1, delay_seconds=delay, error=error, detail=detail)


def _known(**figures: int | None) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}
