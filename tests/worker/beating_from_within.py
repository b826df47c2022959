"""How not to do it: the process that runs the task also renews its lease.

    python beating_from_within.py URL QUEUE TASK BESIDE

It claims one job and calls the function of that name in the module `tasks`, as a worker's runner would. `BESIDE` is
where its heartbeat lives: in a `thread`, or in a `coroutine` on the event loop of the task. The file TASK.beating is
there after the first heartbeat that the store has taken, and has the number of the attempt; only then the task begins.
On a machine that is too busy the lease may be over before that: then it is claimed once more.

The next heartbeat is a while after the task has begun. If the task took the GIL while a heartbeat is in its
transaction, the SQLite file would stay locked for everybody: one more reason not to do it, but not the one that is
shown here.
"""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import tasks  # type: ignore[import-not-found] # the module that the test wrote

from holdfast.domain.answers import Beat, Status
from holdfast.domain.job import Claimed
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store

WORKER = "beats-from-within"


def main(url: str, queue: str, task: str, beside: str) -> None:
    store = open_store(url)
    job = claim_and_beat(store, queue, task)
    if beside == "thread":
        work_beside_a_thread(store, job)
    else:
        asyncio.run(work_beside_a_coroutine(store, job))


def claim_and_beat(store: SqlStore, queue: str, task: str) -> Claimed:
    while True:
        for job in store.claim(WORKER, 1, (queue,), (task,)):
            if beat(store, job):
                Path(f"{job.task}.beating").write_text(str(job.attempt))
                return job
        time.sleep(0.05)


def work_beside_a_thread(store: SqlStore, job: Claimed) -> None:
    def beat_for_ever() -> None:
        while not has_begun(job.task):
            time.sleep(0.01)
        while True:
            time.sleep(job.lease_seconds / 3)
            beat(store, job)

    threading.Thread(target=beat_for_ever, daemon=True).start()
    tasks.app.tasks[job.task](**job.payload)


async def work_beside_a_coroutine(store: SqlStore, job: Claimed) -> None:
    async def beat_for_ever() -> None:
        while True:
            await asyncio.sleep(job.lease_seconds / 3)
            await asyncio.to_thread(beat, store, job)

    beating = asyncio.create_task(beat_for_ever())
    await asyncio.gather(tasks.app.tasks[job.task](**job.payload), beating)


def has_begun(task: str) -> bool:
    """The task in this process is about to take the GIL. A worker has written the same file for its own job."""
    return Path(task).read_text() == str(os.getpid())


def beat(store: SqlStore, job: Claimed) -> bool:
    [answer] = store.heartbeat([Beat(job.job_id, job.attempt, job.lease_token)])
    return answer.status is Status.APPLIED


if __name__ == "__main__":
    main(*sys.argv[1:])
