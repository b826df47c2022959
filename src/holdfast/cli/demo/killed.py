"""Scene three: a worker is killed over a job, and nobody has to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.cli.demo.stage import ADA, DOORS, GRACE, LEASE_SECONDS, Stage
from holdfast.domain.job import AuditEvent, Job

MEMBERS = 450  # about five seconds: each member of the ensemble takes ten milliseconds


def play(stage: Stage, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """`meanwhile` happens at the moment of the kill."""
    voice = stage.voice
    voice.scene("3. A worker is killed in the middle of a job")
    job_id = stage.enqueue("run_model", payload(stage), unique=True).id
    job = _under_way(stage, job_id)
    victim = stage.called(job.lease_owner)
    heir = GRACE if victim == ADA else ADA
    voice.say(
        f"{victim}, {DOORS[victim]}, runs a model: {_done(job.progress)} of {MEMBERS} members are done.",
        f"It holds the job under a lease of {LEASE_SECONDS:g} s (a minute by default), which it renews while it works.",
    )
    pid = stage.crew.kill(victim)
    meanwhile()
    voice.say(f"kill -9 {pid}: {victim} is dead. It could tell nobody.", style="bold red")
    lost = stage.await_event(job_id, "lease_lost", 1, "the lease of the dead worker runs out")
    voice.say(
        f"The lease has run out, and the job is back in the queue. It is on the record: {_row(lost)}.",
        "No heartbeat, no job: nothing had to find out whether the worker was dead, slow or cut off.",
    )
    again = stage.await_event(job_id, "claimed", 2, f"{heir} takes the job over")
    stage.expect(stage.called(again.worker) == heir, f"the job should have been taken over by {heir}")
    voice.say(f"{heir}, {DOORS[heir]}, takes it over as attempt 2, and starts it anew.", style="green")
    return {"killed": {"job_id": job_id, "worker": victim, "taken_over_by": heir}}


def payload(stage: Stage) -> dict[str, Any]:
    return {"spec": {"growth": 0.3, "noise": 0.2, "capacity": stage.names.capacity, "members": MEMBERS}}


def _under_way(stage: Stage, job_id: str) -> Job:
    """The job as it was when somebody had come far enough with it."""
    seen: list[Job] = []

    def is_far_enough() -> bool:
        seen.append(stage.store.job(job_id))
        return seen[-1].lease_owner is not None and _done(seen[-1].progress) >= MEMBERS // 10

    stage.wait(is_far_enough, "the model run is under way")
    return seen[-1]


def _done(progress: Any) -> int:
    return int((progress or {}).get("done", 0))


def _row(event: AuditEvent) -> str:
    return f"attempt {event.attempt} {event.event}, {event.from_state} → {event.to_state}"
