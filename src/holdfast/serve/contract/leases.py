"""What a request says about the lease it acts under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.domain import wire
from holdfast.domain.answers import Beat, Reason
from holdfast.domain.errors import LeaseLost
from holdfast.domain.names import check_integer, check_name
from holdfast.ports import Store
from holdfast.serve.contract.models import LARGEST

Done = TypeVar("Done")

# A token that is no lease's: the store refuses it, and the refusal is on record like any other.
NO_LEASE = ""


def without_status(answer: dict[str, Any]) -> dict[str, Any]:
    """For a single request: whether it is the first or the tenth of its kind, the answer is the same."""
    return {name: value for name, value in answer.items() if name != "status"}


def own_attempt(job_id: str, attempt_id: str) -> tuple[int, bool]:
    """The attempt's number, and whether it is one of this job at all. Who mixes them up holds no lease on either."""
    job, attempt = wire.parse_attempt_id(attempt_id)
    return attempt, job == job_id


def shown(attempt_id: str, lease_token: str, worker_id: str, credential: str) -> Beat:
    """The lease of a job that runs and wants something, with the credential that claimed it."""
    job_id, attempt = wire.parse_attempt_id(attempt_id)
    check_integer(attempt, "attempt_id", 0, LARGEST)
    return Beat(job_id, attempt, lease_token, check_name(worker_id, "worker_id"), credential=credential)


def unless_lost(store: Store, lease: Beat, verb: Callable[[], Done]) -> Done | Reason:
    """What the verb answers; or, where the store says that the lease is lost, why it is."""
    try:
        return verb()
    except LeaseLost:
        [reason] = store.lease_reasons([lease])
        return reason or Reason.LEASE_LOST  # it was given once, and is over
