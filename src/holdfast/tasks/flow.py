"""What a task says instead of a result. Each may be raised or returned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.domain import durations
from holdfast.tasks.retry_after import seconds_of

RETRY_AFTER = "the source asked to come back later"


class Snooze(Exception):
    """Not now: run this job again later. Charges nothing."""

    def __init__(self, delay: float | str | timedelta, reason: str = "snoozed") -> None:
        self.delay_seconds = durations.seconds(delay, "delay")
        self.reason = reason
        super().__init__(f"{reason}, for {self.delay_seconds:g} s")


class RetryAfter(Snooze):
    """An outside system asked to be left alone for a while: a Retry-After header (its text, or the response or the
    exception that has it), or seconds. It pauses the source in whose block it is raised, else the job's own, for every
    job; this one runs again afterwards. Charges nothing."""

    def __init__(self, when: Any = None, reason: str = RETRY_AFTER) -> None:
        super().__init__(seconds_of(when), reason)


class Cancel(Exception):
    """This job need not be done any more."""

    def __init__(self, reason: str = "cancelled") -> None:
        self.reason = reason
        super().__init__(reason)


class Permanent(Exception):
    """This job has failed, and trying again would not help."""

    def __init__(self, error: str | BaseException) -> None:
        self.error = error
        super().__init__(str(error))
