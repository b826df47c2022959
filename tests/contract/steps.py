"""The steps that most tests take on their way to what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.domain.answers import Beat, Reaped, Settled, Status
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    JobError,
    Outcome,
    Released,
    Report,
    Snoozed,
    Succeeded,
)
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import Clock

EXACT = RetryPolicy(jitter=0.0)
BROKEN = Failed(JobError("boom", "it broke"))
HOPELESS = Failed(JobError("bad", "it will never work", retryable=False))
KILLED = Crashed("killed by signal 9", signal=9)

# Decided in Python before or beside any SQL, or by SQL that another test runs on both databases: one of them is enough.
# The last decorator before the function, so that the database comes first in the names of the tests.
postgres_later = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)


def new(task: str = "add", **options: Any) -> NewJob:
    return NewJob(task=task, **options)


def enqueue(store: SqlStore, task: str = "add", **options: Any) -> str:
    return store.enqueue(new(task, **options)).id


def enqueue_many(store: SqlStore, count: int, task: str = "add", **options: Any) -> list[str]:
    jobs = [new(task, payload={"number": number}, **options) for number in range(count)]
    return [answer.id for answer in store.enqueue_many(jobs)]


def claim(store: SqlStore, worker: str = "ann", **wanted: Any) -> Claimed:
    """The one job that can be claimed."""
    [claimed] = store.claim(worker, 10, **wanted)
    return claimed


def claim_this(store: SqlStore, job_id: str, worker: str = "ann") -> Claimed:
    claimed = store.claim_job(worker, job_id)
    assert claimed is not None, f"job {job_id} cannot be claimed: {store.job(job_id)}"
    return claimed


def claim_ids(store: SqlStore, limit: int = 100, **wanted: Any) -> list[str]:
    return [claimed.job_id for claimed in store.claim("ann", limit, **wanted)]


def start(store: SqlStore, task: str = "add", **options: Any) -> Claimed:
    """Enqueue a job and claim just it."""
    return claim_this(store, enqueue(store, task, **options))


def report(claimed: Claimed, outcome: Outcome, **more: Any) -> Report:
    return Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome, **{"worker": "ann", **more})


def settle(store: SqlStore, claimed: Claimed, outcome: Outcome, **more: Any) -> Settled:
    [answer] = store.settle([report(claimed, outcome, **more)])
    return answer


def settle_well(store: SqlStore, claimed: Claimed, outcome: Outcome) -> Settled:
    answer = settle(store, claimed, outcome)
    assert answer.status is Status.APPLIED, answer
    return answer


def beat(claimed: Claimed, **more: Any) -> Beat:
    return Beat(claimed.job_id, claimed.attempt, claimed.lease_token, **{"worker": "ann", **more})


def reap(store: SqlStore, holder: str = "reaper", **timing: float) -> Reaped:
    """A pass of the reaper that does not wait for its period."""
    return store.reap(holder, **{"period": 0.0, "lease_seconds": 60.0, "heartbeat_seconds": 20.0, **timing})


def job_in(store: SqlStore, state: State, **options: Any) -> str:
    """A job that has come to this state by the verbs."""
    if state is State.PENDING:
        return enqueue(store, **options)
    claimed = start(store, **options)
    match state:
        case State.RETRYABLE:
            settle_well(store, claimed, BROKEN)
        case State.SUCCEEDED:
            settle_well(store, claimed, Succeeded({"sum": 3}))
        case State.FAILED:
            settle_well(store, claimed, HOPELESS)
        case State.CANCELLED:
            settle_well(store, claimed, Released())
            store.cancel([claimed.job_id])
        case _:
            pass
    assert store.job(claimed.job_id).state is state
    return claimed.job_id


def lose_lease(store: SqlStore, clock: Clock, claimed: Claimed, reaper: str = "reaper") -> None:
    """Let the lease run out, reaped by a reaper that was never away."""
    reap(store, reaper)
    steps = int(claimed.lease_seconds // 30) + 1
    for _ in range(steps):
        clock.move(claimed.lease_seconds / steps + 0.1)
        reap(store, reaper)


def history(store: SqlStore, job_id: str) -> list[str]:
    return [event.event for event in store.events(job_id)]


def states_of(store: SqlStore, job_ids: Sequence[str]) -> list[State]:
    return [store.job(job_id).state for job_id in job_ids]


EVERY_OUTCOME: dict[str, Outcome] = {
    "succeeded": Succeeded({"sum": 3}),
    "retry_scheduled": BROKEN,
    "failed": HOPELESS,
    "crashed": KILLED,
    "released": Released("deploy"),
    "snoozed": Snoozed(30.0, "rate limited"),
    "cancelled": Cancelled("no longer wanted"),
}
