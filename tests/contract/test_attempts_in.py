"""The attempts that a history tells of are those of the view."""

from __future__ import annotations

from holdfast.domain.attempts import attempts_in
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded, Usage
from holdfast.stores.sql_store import SqlStore


def test_whatever_became_of_them(store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="t", max_attempts=9, max_crashes=9)).id
    endings: tuple[Outcome, ...] = (
        Released("its worker stops"),
        Snoozed(0.0, "later"),
        Crashed("killed", signal=9),
        Failed(JobError("E", "wrong", "stack"), exit_code=3),
        Succeeded({"x": 1}),
    )
    for outcome in endings:
        with store.database.engine.begin() as connection:  # no waiting for a backoff
            connection.exec_driver_sql("UPDATE holdfast_jobs SET run_after = created_at WHERE state <> 'running'")
        claimed = store.claim_job("worker", job_id)
        assert claimed is not None
        usage = Usage(duration_ms=12, cpu_ms=3, max_rss_kb=99)
        store.settle([Report(job_id, claimed.attempt, claimed.lease_token, outcome, "worker", usage)])
    found = attempts_in(store.events(job_id))
    assert [attempt.outcome for attempt in found] == ["released", "snoozed", "crashed", "retry_scheduled", "succeeded"]
    assert found == store.attempts(job_id)


def test_one_that_runs_and_one_whose_claim_is_not_among_the_events(store: SqlStore) -> None:
    job_id = store.enqueue(NewJob(task="t")).id
    first = store.claim_job("a", job_id)
    assert first is not None
    store.settle([Report(job_id, first.attempt, first.lease_token, Released(), "a", Usage(duration_ms=5))])
    store.claim_job("b", job_id)
    events = store.events(job_id)
    assert attempts_in(events) == store.attempts(job_id)
    assert [attempt.worker for attempt in attempts_in(events[2:])] == ["b"]
