"""Run a job's spec again, as a new job with the same options that says whose replay it is."""

from __future__ import annotations

from holdfast.domain.errors import Conflict
from holdfast.domain.job import Enqueued, Job, NewJob
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.database import Database
from holdfast.stores.verbs import enqueueing, querying


def replay(database: Database, job_id: str, new_id: str | None) -> Enqueued:
    """Any job can be replayed, whatever became of it; one with a unique key only while nobody has the key, as with a
    requeue. With `new_id` it is safe to ask again."""
    original = querying.job(database, job_id)
    answer = enqueueing.enqueue(database, [_again(original, new_id)])[0]
    if not answer.created and answer.id != new_id:
        raise Conflict(
            "unique_key",
            f"job {answer.id} has the unique key of {original.id} and is {answer.state}; wait until it has ended",
        )
    return answer


def _again(job: Job, new_id: str | None) -> NewJob:
    return NewJob(
        id=new_id,
        task=job.task,
        payload=job.payload,
        version=job.task_version,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        retry=None if job.retry is None else RetryPolicy.from_json(job.retry),
        timeout_seconds=job.timeout_seconds,
        lease_seconds=job.lease_seconds,
        source=job.source,
        unique_key=job.unique_key,
        webhook=job.webhook,
        replay_of=job.id,
    )
