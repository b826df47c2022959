"""Scene one: a hundred jobs, two workers, and every way an attempt can end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.cli.demo.crew import Crew
from holdfast.cli.demo.stage import PATIENCE_SECONDS, Stage
from holdfast.cli.demo.tasks import Act
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import ACTIVE, State
from holdfast.domain.retry import RetryPolicy

COUNT = 100
WORKERS = ("ada", "grace")
RETRY = RetryPolicy(kind="fixed", base=0.1, jitter=0.0)


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
    with Crew(stage.database, stage.queue, WORKERS) as crew:
        stage.say(f"Workers {' and '.join(WORKERS)} start, each with two runner processes of its own.")
        _cancel(stage, crew, jobs[acts.index(Act.ENDLESS)].id)
        ended = _wait(crew, lambda: not stage.store.jobs(states=ACTIVE, queue=stage.queue, limit=1).items)
        stage.expect(ended, f"all jobs should have ended in time; the workers said: {'' if ended else crew.said()}")
    settled = _settled(stage, jobs)
    stage.say(_ended(settled, time.monotonic() - started))
    for job, act in zip(jobs, acts, strict=True):
        stage.expect_history(job.id, LIVES[act])
    return {"settled": dict(sorted(settled.items()))}


def _wait(crew: Crew, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline or not crew.all_running():
            return False
        time.sleep(0.05)
    return True


def _settled(stage: Stage, jobs: Sequence[Enqueued]) -> Counter[str]:
    events = (event for job in jobs for event in stage.store.events(job.id))
    return Counter(
        event.event for event in events if event.from_state == State.RUNNING and event.to_state != State.RUNNING
    )


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
    stage.expect(_wait(crew, lambda: _holder(stage, job_id) is not None), "the job to cancel should have been started")
    holder = _holder(stage, job_id)
    answers = stage.store.cancel([job_id])
    stage.expect(answers[0].ok, "a running job can be cancelled")
    stage.say(f"An operator cancels a job that {holder} is running; {holder} learns of it with a heartbeat.")


def _holder(stage: Stage, job_id: str) -> str | None:
    owner = stage.store.job(job_id).lease_owner
    return next((name for name in WORKERS if owner and owner.startswith(name)), None)


def _ended(settled: Counter[str], seconds: float) -> str:
    return (
        f"All ended after {seconds:.1f} s: {settled['succeeded']} succeeded, of which {settled['retry_scheduled']} had"
        f" failed once, {settled['crashed']} had crashed and {settled['snoozed']} had asked for later;"
        f" {settled['cancelled']} was cancelled, {settled['failed']} failed for good."
    )
