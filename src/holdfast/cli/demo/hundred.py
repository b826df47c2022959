"""Scene one: a hundred jobs, two workers, and every way an attempt can end."""

from __future__ import annotations

import signal
import time
from collections import Counter
from enum import StrEnum
from typing import Any

from holdfast.cli.demo.crew import BATCH, Crew
from holdfast.cli.demo.stage import Stage
from holdfast.domain.job import Claimed, Enqueued, NewJob
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Snoozed, Succeeded
from holdfast.domain.retry import RetryPolicy

COUNT = 100
WORKERS = ("ada", "grace")
RETRY = RetryPolicy(kind="fixed", base=0.1, jitter=0.0)
SNOOZE_SECONDS = 0.2


class Act(StrEnum):
    """What a job does when it is run for the first time; the second time it always succeeds."""

    PLAIN = "plain"
    FLAKY = "flaky"
    CRASH = "crash"
    SNOOZE = "snooze"
    ENDLESS = "endless"
    BROKEN = "broken"


PARTS = {
    10: Act.FLAKY,
    20: Act.CRASH,
    30: Act.FLAKY,
    40: Act.SNOOZE,
    50: Act.FLAKY,
    60: Act.ENDLESS,
    70: Act.FLAKY,
    80: Act.BROKEN,
}

LIVES = {
    Act.PLAIN: ("enqueued", "claimed", "succeeded"),
    Act.FLAKY: ("enqueued", "claimed", "retry_scheduled", "claimed", "succeeded"),
    Act.CRASH: ("enqueued", "claimed", "crashed", "claimed", "succeeded"),
    Act.SNOOZE: ("enqueued", "claimed", "snoozed", "claimed", "succeeded"),
    Act.ENDLESS: ("enqueued", "claimed", "cancel_requested", "cancelled"),
    Act.BROKEN: ("enqueued", "claimed", "failed"),
}


def play(stage: Stage) -> dict[str, Any]:
    started = time.monotonic()
    acts = [PARTS.get(number, Act.PLAIN) for number in range(COUNT)]
    jobs = _enqueue(stage, acts)
    with Crew(stage.store, stage.queue, WORKERS, perform) as crew:
        stage.say(f"Workers {' and '.join(WORKERS)} claim {BATCH} at a time, heartbeat, and settle in batches.")
        _cancel(stage, crew, jobs[acts.index(Act.ENDLESS)].id)
        stage.expect(crew.ledger.wait_for_ends(COUNT), "all jobs should have ended in time")
    settled = crew.ledger.settled()
    stage.say(_ended(settled, time.monotonic() - started))
    for job, act in zip(jobs, acts, strict=True):
        stage.expect_history(job.id, LIVES[act])
    return {"settled": dict(sorted(settled.items()))}


def _enqueue(stage: Stage, acts: list[Act]) -> list[Enqueued]:
    wanted = [
        NewJob(task="demo.square", payload={"number": number, "act": str(act)}, queue=stage.queue, retry=RETRY)
        for number, act in enumerate(acts)
    ]
    started = time.monotonic()
    jobs = stage.store.enqueue_many(wanted)
    stage.say(f"{len(jobs)} jobs stored in one call, in {(time.monotonic() - started) * 1000:.0f} ms.")
    return jobs


def _cancel(stage: Stage, crew: Crew, job_id: str) -> None:
    holder = crew.ledger.wait_for_holder(job_id)
    stage.expect(holder is not None, "the job to cancel should have been started")
    answers = stage.store.cancel([job_id])
    stage.expect(answers[0].ok, "a running job can be cancelled")
    stage.say(f"An operator cancels a job that {holder} is running; {holder} learns of it with a heartbeat.")


def perform(job: Claimed) -> Outcome | None:
    """What the task's code would do, and what its worker would report."""
    act = Act(job.payload["act"]) if job.attempt == 1 else Act.PLAIN
    match act:
        case Act.PLAIN:
            return Succeeded({"square": job.payload["number"] ** 2})
        case Act.FLAKY:
            return Failed(JobError("ConnectionError", "the network blinked"))
        case Act.CRASH:
            return Crashed("the runner was killed", signal=int(signal.SIGKILL))
        case Act.SNOOZE:
            return Snoozed(SNOOZE_SECONDS, "not ready yet")
        case Act.BROKEN:
            return Failed(JobError("Permanent", "no number of tries will help", retryable=False))
        case Act.ENDLESS:
            return None


def _ended(settled: Counter[str], seconds: float) -> str:
    return (
        f"All ended after {seconds:.1f} s: {settled['succeeded']} succeeded, of which {settled['retry_scheduled']} had"
        f" failed once, {settled['crashed']} had crashed and {settled['snoozed']} had asked for later;"
        f" {settled['cancelled']} was cancelled, {settled['failed']} failed for good."
    )
