"""Who may ask what: clients change things, viewers only look, and a token that is limited to queues sees nothing else.

A job of another queue is as if it were not there (404); a queue that is named is refused (403).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

from fastapi import Depends

from holdfast.domain.errors import Conflict, NotFound
from holdfast.domain.job import DEFAULT_QUEUE, Enqueued, Job
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_id
from holdfast.domain.tokens import Scope
from holdfast.ports import Store
from holdfast.serve.auth import Identity, allowed
from holdfast.serve.problems import Refused

Client = Annotated[Identity, Depends(allowed(Scope.CLIENT))]
Reader = Annotated[Identity, Depends(allowed(Scope.CLIENT, Scope.VIEWER))]


def check_job(store: Store, identity: Identity, job_id: str) -> str:
    """The id of a job that is there for this token."""
    job_id = check_id(job_id, "job_id")
    queue = store.queue_of(job_id)
    if queue is None or not identity.may_use(queue):
        raise no_job(job_id)
    return job_id


def check_history(store: Store, identity: Identity, job_id: str) -> str:
    """The same for what outlives the job; of a job that is gone the queue is not known."""
    job_id = check_id(job_id, "job_id")
    queue = store.queue_of(job_id)
    if identity.queues is not None and (queue is None or not identity.may_use(queue)):
        raise no_job(job_id)
    return job_id


def lineage_seen(store: Store, identity: Identity, jobs: Sequence[Job]) -> list[Job]:
    """The same jobs; to a token that is limited to queues, one whose original is of another queue is no replay.

    Nor is one whose original is gone: of what queue that was is not known any more, and its id would lead such a token
    nowhere (`check_history`). One question for all of them."""
    if identity.queues is None:
        return list(jobs)
    queues = store.queues_of({job.replay_of for job in jobs if job.replay_of is not None})
    return [
        job if job.replay_of is None or queues.get(job.replay_of) in identity.queues else replace(job, replay_of=None)
        for job in jobs
    ]


def may_see_original(identity: Identity) -> Callable[[Job | None], bool]:
    """The same rule for a chain that is walked: None is a job that is gone."""
    return lambda original: identity.queues is None or (original is not None and identity.may_use(original.queue))


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


def may_use_task(identity: Identity, task: TaskInfo | None) -> bool:
    """Could it make a job of this task without naming a queue?"""
    queue = None if task is None else task.job_options().get("queue")
    return identity.may_use(queue or DEFAULT_QUEUE)


@contextmanager
def without_names(identity: Identity) -> Iterator[None]:
    """Who has a key or an id that is taken is told only to those who see every queue. To the others the refusal is the
    same whatever the job is, so that nobody can guess at it."""
    try:
        yield
    except Conflict:
        if identity.queues is None:
            raise
        raise _taken() from None


def check_stand_in(store: Store, identity: Identity, enqueued: Enqueued) -> Enqueued:
    """409 where a job that is not there for this token stands in for the one that was to be made: nothing was."""
    if enqueued.created or identity.queues is None:
        return enqueued
    queue = store.queue_of(enqueued.id)
    if queue is None or not identity.may_use(queue):
        raise _taken()
    return enqueued


def _taken() -> Refused:
    return Refused(409, "Taken", "another job has this id or unique key, or has done the same already; use another one")


def check_whole_fleet(identity: Identity, what: str) -> None:
    if identity.queues is not None:
        raise Refused(403, "Not for this token", f"{what} is for all queues, and this token is limited to some")
