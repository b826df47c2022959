"""A worker freezes over a job, then one is killed over the next: who finishes them, and what the zombie is told."""

from __future__ import annotations

import os
import signal

from stage import WORKERS, Stage, begin, table, verify
from tasks import slow

STORY = "SELECT seq, event, attempt, worker FROM holdfast_events WHERE job_id = :job ORDER BY seq"
REFUSED = """
    SELECT attempt, verb, reason, worker FROM holdfast_refusals
    WHERE job_id = :job AND verb <> 'heartbeat' ORDER BY first_at"""


def main() -> None:
    stage = begin("dead-worker")
    with stage.workers("--processes", "1"):
        print("Workers ann and bob wait for jobs.")
        freeze(stage)
        kill(stage)
    verify(stage)


def freeze(stage: Stage) -> None:
    """SIGSTOP is what a suspended machine or a very long garbage collection look like from outside."""
    handle = slow.using(queue=stage.queue).enqueue()
    zombie = stage.holder(handle.id)
    stage.freeze(zombie)
    print(f"\n{zombie} runs a job and is frozen, kill -STOP: its lease of 2 s is renewed no more.")
    print(f"{other(zombie)} has the job's result: {handle.result('60s')}.")
    os.kill(stage.pids[zombie], signal.SIGCONT)
    stage.wait(lambda: bool(stage.sql(REFUSED, job=handle.id)), "the zombie is refused")
    print(f"{zombie} wakes up, kill -CONT, and reports. It is refused; that is on record beside the job's history:")
    tell(stage, handle.id)


def kill(stage: Stage) -> None:
    handle = slow.using(queue=stage.queue).enqueue()
    killed = stage.holder(handle.id)
    os.kill(stage.pids[killed], signal.SIGKILL)
    print(f"\n{killed} runs the next job and is killed, kill -9: it says nothing more, and its runners die with it.")
    print(f"{other(killed)} has the job's result: {handle.result('60s')}.")
    tell(stage, handle.id)


def other(name: str) -> str:
    return next(worker for worker in WORKERS if worker != name)


def tell(stage: Stage, job_id: str) -> None:
    table(("seq", "event", "attempt", "worker"), stage.sql(STORY, job=job_id))
    refused = stage.sql(REFUSED, job=job_id)
    if refused:
        table(("attempt", "refused", "reason", "worker"), refused)


if __name__ == "__main__":
    main()
