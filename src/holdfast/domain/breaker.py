"""What an ending does to a source's circuit breaker. Pure; the store holds the row's lock meanwhile.

    closed     --  failures in a row reach the threshold      ->  open, paused for `pause_seconds`
    open       --  the pause is over                           ->  half open (nobody has to do anything for that)
    half open  --  the probe succeeds                          ->  closed
    half open  --  the probe fails                             ->  open again

While it is open, jobs that were let in before may still end. Their endings are noted and move nothing: an old failure
must not lengthen the pause, and an old success says nothing about the source as it is now.

A source that asks to be left alone (Retry-After) is paused as well. That is no failure: the streak stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from holdfast.domain.sources import Breaker, PausedBy

LONGEST_RETRY_AFTER_SECONDS = 86_400.0
# A success is written down at most so often while nothing else has changed: sources would be hot rows otherwise.
SUCCESS_NOTED_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """When the breaker opens, for how long, and which failures count: only these codes, or all but those."""

    threshold: int = 5
    pause_seconds: float = 300.0
    only: tuple[str, ...] | None = None
    ignores: tuple[str, ...] = ()
    counts_permanent: bool = True

    def counts(self, code: str, *, retryable: bool) -> bool:
        if self.only is not None and code not in self.only:
            return False
        return code not in self.ignores and (retryable or self.counts_permanent)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a source stands. `paused_until` may be past."""

    failure_streak: int = 0
    paused_until: datetime | None = None
    paused_by: PausedBy | None = None
    last_success_at: datetime | None = None
    last_failure_at: datetime | None = None

    def is_paused(self, now: datetime) -> bool:
        return self.paused_until is not None and self.paused_until > now

    def breaker(self, threshold: int, now: datetime) -> Breaker:
        failing = self.failure_streak >= threshold
        if self.is_paused(now):
            return Breaker.OPEN if failing or self.paused_by is PausedBy.BREAKER else Breaker.CLOSED
        return Breaker.HALF_OPEN if failing else Breaker.CLOSED


@dataclass(frozen=True, slots=True)
class Success:
    pass


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    retryable: bool = True
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Throttled:
    """It said when it wants to hear from us again."""

    seconds: float
    job_id: str | None = None


Ending = Success | Failure | Throttled


@dataclass(frozen=True, slots=True)
class Happened:
    """A move worth a row in holdfast_source_events."""

    event: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moved:
    standing: Standing
    happened: Happened | None = None


def move(standing: Standing, rules: Rules, ending: Ending, now: datetime) -> Moved:
    match ending:
        case Success():
            return _after_success(standing, rules, now)
        case Failure():
            return _after_failure(standing, rules, ending, now)
        case Throttled():
            return _after_throttling(standing, ending, now)
        case _ as never:
            assert_never(never)


def matters(standing: Standing, rules: Rules, ending: Ending, now: datetime) -> bool:
    """Whether it is worth the row's lock. In a calm source a success is noted once a second, and moves nothing."""
    match ending:
        case Success():
            noted = standing.last_success_at
            calm = timedelta(seconds=SUCCESS_NOTED_EVERY_SECONDS)
            return standing.failure_streak > 0 or noted is None or now - noted > calm
        case Failure(code=code, retryable=retryable):
            return rules.counts(code, retryable=retryable)
        case Throttled():
            return True
        case _ as never:
            assert_never(never)


def _after_success(standing: Standing, rules: Rules, now: datetime) -> Moved:
    noted = replace(standing, last_success_at=now)
    match standing.breaker(rules.threshold, now):
        case Breaker.OPEN:
            return Moved(noted)
        case Breaker.CLOSED:
            return Moved(replace(noted, failure_streak=0))
        case Breaker.HALF_OPEN:
            closed = replace(noted, failure_streak=0, paused_until=None, paused_by=None)
            return Moved(closed, Happened("breaker_closed", {"streak": standing.failure_streak}))
        case _ as never:
            assert_never(never)


def _after_failure(standing: Standing, rules: Rules, failure: Failure, now: datetime) -> Moved:
    if not rules.counts(failure.code, retryable=failure.retryable):
        return Moved(standing)
    noted = replace(standing, last_failure_at=now)
    before = standing.breaker(rules.threshold, now)
    if before is Breaker.OPEN:
        return Moved(noted)
    failed = replace(noted, failure_streak=standing.failure_streak + 1)
    if failed.failure_streak < rules.threshold:
        return Moved(failed)
    opened = _paused(failed, now + timedelta(seconds=rules.pause_seconds), PausedBy.BREAKER, now)
    detail: dict[str, Any] = {
        "streak": opened.failure_streak,
        "code": failure.code,
        "job_id": failure.job_id,
        "paused_until": opened.paused_until,
    }
    if before is Breaker.HALF_OPEN:
        detail["probe"] = True
    return Moved(opened, Happened("breaker_opened", detail))


def _after_throttling(standing: Standing, throttled: Throttled, now: datetime) -> Moved:
    seconds = min(throttled.seconds, LONGEST_RETRY_AFTER_SECONDS)
    paused = _paused(standing, now + timedelta(seconds=seconds), PausedBy.RETRY_AFTER, now)
    if paused == standing:
        return Moved(standing)
    detail = {"seconds": seconds, "job_id": throttled.job_id, "paused_until": paused.paused_until}
    return Moved(paused, Happened("throttled", detail))


def _paused(standing: Standing, until: datetime, by: PausedBy, now: datetime) -> Standing:
    """A pause is never shortened by another one."""
    if until <= now or (
        standing.is_paused(now) and standing.paused_until is not None and standing.paused_until >= until
    ):
        return standing
    return replace(standing, paused_until=until, paused_by=by)
