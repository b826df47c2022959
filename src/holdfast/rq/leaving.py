"""Jobs that are not run here: their messages are done with. A job that is to be run at all is offered again by the
sweep, soon; one of a task that this app lacks, after a while (`transports/rq_refusals`)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from redis import RedisError
from rq import get_current_job

from holdfast.transports.rq_refusals import is_lacking, remember_lack, remember_refusal

# Below RQ's own logger: its handlers, its format and its `--quiet` hold for our lines too.
logger = logging.getLogger("rq.worker.holdfast")


def left(job_id: str, why: str) -> dict[str, Any]:
    logger.info("job %s is not run here: %s", job_id, why)
    return {"job_id": job_id, "ran": False, "why": why}


def left_as_before(job_id: str) -> dict[str, Any] | None:
    """An answer without starting anything, when this worker found out a moment ago that its app lacks the task. Only
    messages of ours say which task it is."""
    message = get_current_job()
    if message is None:
        return None
    task, seq = message.meta.get("task"), message.meta.get("seq")
    if not isinstance(task, str) or not task.isprintable() or not isinstance(seq, int):
        return None
    with suppress(RedisError):
        if is_lacking(message.connection, message.worker_name or "", task):
            remember_refusal(message.connection, job_id, seq)
            return left(job_id, f"this app had no task {task} a moment ago")
    return None


def remember_unknown_task(job_id: str, seq: int, task: str) -> None:
    """Where this is called by RQ. It is a hint: without it the job is offered again, and refused again."""
    message = get_current_job()
    if message is not None:
        with suppress(RedisError):
            remember_refusal(message.connection, job_id, seq)
            remember_lack(message.connection, message.worker_name or "", task)
