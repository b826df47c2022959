"""What a task says instead of a result. Each may be raised or returned."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain import durations


class Snooze(Exception):
    """Not now: run this job again later. Charges nothing."""

    def __init__(self, delay: float | str | timedelta, reason: str = "snoozed") -> None:
        self.delay_seconds = durations.seconds(delay, "delay")
        self.reason = reason
        super().__init__(f"{reason}, for {self.delay_seconds:g} s")


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
