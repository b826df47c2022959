"""What a job that was stopped from outside reports, by the reason for stopping it."""

from __future__ import annotations

from holdfast.domain.outcome import Cancelled, Failed, JobError, Outcome, Released


def ending(reason: str, timeout_seconds: float | None = None) -> Outcome:
    match reason:
        case "timeout":
            limit = "" if timeout_seconds is None else f" of {timeout_seconds:g} s"
            return Failed(JobError("timeout", f"the attempt ran longer than its time limit{limit}"))
        case "lease_lost":
            return Released("lease lost")
        case "cancel_requested":
            return Cancelled("cancel requested")
        case _:
            return Released(reason.replace("_", " "))
