"""How not to do it: the process that runs the task also renews its lease.

    python beating_from_within.py URL QUEUE TASK BESIDE

It claims one job and calls the function of that name in the module `tasks`, as a worker's runner would. `BESIDE` is
where its heartbeat lives: in a `thread`, or in a `coroutine` on the event loop of the task. The file TASK.beating is
there after the first heartbeat that the store has taken; only then the task begins.
"""

import asyncio
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
    [job] = store.claim(WORKER, 1, (queue,), (task,))
    if beside == "thread":
        work_beside_a_thread(store, job)
    else:
        asyncio.run(work_beside_a_coroutine(store, job))


def work_beside_a_thread(store: SqlStore, job: Claimed) -> None:
    def beat_for_ever() -> None:
        while True:
            beat(store, job)
            time.sleep(job.lease_seconds / 3)

    threading.Thread(target=beat_for_ever, daemon=True).start()
    while not Path(f"{job.task}.beating").exists():
        time.sleep(0.01)
    tasks.app.tasks[job.task](**job.payload)


async def work_beside_a_coroutine(store: SqlStore, job: Claimed) -> None:
    async def beat_for_ever() -> None:
        while True:
            await asyncio.to_thread(beat, store, job)
            await asyncio.sleep(job.lease_seconds / 3)

    beating = asyncio.create_task(beat_for_ever())
    while not Path(f"{job.task}.beating").exists():
        await asyncio.sleep(0.01)
    await asyncio.gather(tasks.app.tasks[job.task](**job.payload), beating)


def beat(store: SqlStore, job: Claimed) -> None:
    [answer] = store.heartbeat([Beat(job.job_id, job.attempt, job.lease_token)])
    if answer.status is Status.APPLIED:
        Path(f"{job.task}.beating").write_text("yes")


if __name__ == "__main__":
    main(*sys.argv[1:])
