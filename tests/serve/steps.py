"""Jobs that have come to an end, by the verbs of the store."""

from __future__ import annotations

from holdfast.domain.artifacts import Artifact
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Outcome, Report
from holdfast.stores.sql_store import SqlStore


def done(store: SqlStore, new: NewJob, outcome: Outcome) -> str:
    """A job that has come to this."""
    return run(store, store.enqueue(new).id, outcome)


def run(store: SqlStore, job_id: str, outcome: Outcome, artifacts: tuple[Artifact, ...] = ()) -> str:
    claimed = store.claim_job("ann", job_id)
    assert claimed is not None
    [settled] = store.settle([Report(job_id, claimed.attempt, claimed.lease_token, outcome, artifacts=artifacts)])
    assert settled.ok
    return job_id
