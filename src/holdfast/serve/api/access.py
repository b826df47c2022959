"""Who may ask what: clients change things, viewers only look, and a token that is limited to queues sees nothing else.

A job of another queue is as if it were not there (404); a queue that is named is refused (403).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from holdfast.domain.errors import NotFound
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


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


def check_whole_fleet(identity: Identity, what: str) -> None:
    if identity.queues is not None:
        raise Refused(403, "Not for this token", f"{what} is for all queues, and this token is limited to some")
