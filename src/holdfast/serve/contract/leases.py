"""What a request says about the lease it acts under."""

from __future__ import annotations

from typing import Any

from holdfast.domain import wire

# A token that is no lease's: the store refuses it, and the refusal is on record like any other.
NO_LEASE = ""


def without_status(answer: dict[str, Any]) -> dict[str, Any]:
    """For a single request: whether it is the first or the tenth of its kind, the answer is the same."""
    return {name: value for name, value in answer.items() if name != "status"}


def own_attempt(job_id: str, attempt_id: str) -> tuple[int, bool]:
    """The attempt's number, and whether it is one of this job at all. Who mixes them up holds no lease on either."""
    job, attempt = wire.parse_attempt_id(attempt_id)
    return attempt, job == job_id
