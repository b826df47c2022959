"""What is remembered in Redis of jobs that an RQ worker had no task for, so that they do not circulate for ever.

refused    a version of a job is not offered again for a while; else the sweep, which sees a job that is due and has no
           message, would offer it every few seconds, and the jobs behind it would wait for all those refusals
lacking    a worker need not import its app again to find out that it has no such task. It is kept for each worker and
           for a short time: workers of other apps know other tasks, and a new version of this one may know it too

Both vanish with everything else in Redis, and then the job is offered again at once. Nothing else is remembered: what
was refused because the store was away, or was lost, is offered again by the next sweep.
"""

from __future__ import annotations

from redis import Redis

REFUSED_SECONDS = 600
LACKING_SECONDS = 60


def refused_key(job_id: str, seq: int) -> str:
    return f"holdfast-rq:refused:{job_id}-{seq}"


def remember_refusal(redis: Redis, job_id: str, seq: int) -> None:
    redis.set(refused_key(job_id, seq), 1, ex=REFUSED_SECONDS)


def remember_lack(redis: Redis, worker: str, task: str) -> None:
    redis.set(_lacking_key(worker, task), 1, ex=LACKING_SECONDS)


def is_lacking(redis: Redis, worker: str, task: str) -> bool:
    return bool(redis.exists(_lacking_key(worker, task)))


def _lacking_key(worker: str, task: str) -> str:
    return f"holdfast-rq:lacking:{worker}:{task}"
