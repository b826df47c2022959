"""`python -m benchmarks.curves.raw URL COUNT BATCH`: enqueue, claim and settle so many jobs in a row, and say each
second how many there were. It never leaves more than a few thousand waiting."""

from __future__ import annotations

import sys
import time

from benchmarks.curves.draining import QUEUE, TASK, enqueue
from holdfast.domain.outcome import Report, Succeeded
from holdfast.wiring.sql import open_store

STOCK = 5_000


def main(url: str, count: int, batch: int) -> None:
    store = open_store(url, notify=False)
    done = told = 0
    tell_at = time.monotonic() + 1.0
    while done < count:
        claimed = store.claim("raw", batch, [QUEUE], [TASK])
        if not claimed:
            enqueue(store, min(STOCK, count - done))
            continue
        answers = store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])
        done += sum(answer.ok for answer in answers)
        if time.monotonic() >= tell_at or done >= count:
            print(time.time(), done - told, flush=True)
            told, tell_at = done, time.monotonic() + 1.0
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
