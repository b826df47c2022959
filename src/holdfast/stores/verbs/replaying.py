"""Run a job's spec again, as a new job with the same options that says whose replay it is."""

from __future__ import annotations

import json

from holdfast.domain.errors import Conflict, InvalidInput, NotFound
from holdfast.domain.job import Enqueued, Job, NewJob
from holdfast.domain.names import check_id
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.spec import Undecodable
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.statements.enqueue import PRUNED
from holdfast.stores.statements.replays import REPLAYS
from holdfast.stores.verbs import enqueueing, querying

MOST_REPLAYS = 100


def replay(database: Database, job_id: str, new_id: str | None) -> Enqueued:
    """Any job can be replayed, whatever became of it; one with a unique key only while nobody has the key, as with a
    requeue. With `new_id` it is safe to ask again."""
    new_id = None if new_id is None else check_id(new_id)
    original = _original(database, check_id(job_id, "job_id"))
    if original.task == DELIVERY_TASK:
        raise InvalidInput("job_id", f"{original.id} delivers a webhook, of which there is one; requeue it instead")
    answer = enqueueing.enqueue(database, [_again(original, new_id)])[0]
    if not answer.created and answer.id != new_id:
        raise Conflict(
            "unique_key",
            f"job {answer.id} has the unique key of {original.id} and is {answer.state}; wait until it has ended",
        )
    return answer


def _original(database: Database, job_id: str) -> Job:
    try:
        return querying.job(database, job_id)
    except NotFound:
        with database.reading() as transaction:
            pruned = transaction.rows(PRUNED, {"ids": json.dumps([job_id])})
        if not pruned:
            raise
        raise NotFound(
            f"job {job_id} has been pruned, and its payload with it: enqueue the task anew; `holdfast retention` says"
            " how long jobs are kept"
        ) from None


def _again(job: Job, new_id: str | None) -> NewJob:
    if isinstance(job.payload, Undecodable):
        raise InvalidInput("payload", f"of job {job.id} {job.payload.reason}; correct it, or enqueue the task anew")
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


def replays(database: Database, job_id: str) -> list[Job]:
    """The oldest first; of very many the latest hundred."""
    wanted = {"id": check_id(job_id, "job_id"), "limit": MOST_REPLAYS}
    with database.reading() as transaction:
        found = transaction.rows(REPLAYS, wanted)
    return [rows.job(row, database.dialect) for row in reversed(found)]
