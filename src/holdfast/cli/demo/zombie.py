"""Scene two: a worker freezes, loses its job, wakes up, and is refused.

This is what a long garbage collection, a suspended laptop or a network partition looks like from the store.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast.cli.demo.stage import PATIENCE_SECONDS, Stage
from holdfast.domain.answers import Beat, Reason, Status, Verb
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Outcome, Released, Report, Succeeded

ZOMBIE, RESCUER, REAPER = "zombie", "grace", "demo-reaper"
LEASE_SECONDS = 0.3
REAP_EVERY_SECONDS = 0.05
LIFE = ("enqueued", "claimed", "lease_lost", "claimed", "succeeded")
REFUSED = (Verb.COMPLETE, Verb.HEARTBEAT, Verb.RELEASE)


def play(stage: Stage) -> dict[str, Any]:
    wanted = NewJob(task="demo.slow", queue=stage.queue, lease_seconds=LEASE_SECONDS)
    job_id = stage.store.enqueue(wanted).id
    lost = _claim(stage, ZOMBIE)
    stage.say(f"A worker named {ZOMBIE} claims a job with a lease of {LEASE_SECONDS} s, and freezes.")
    _wait_for_reaper(stage, job_id)
    rescued = _claim(stage, RESCUER)
    if lost is None or rescued is None:
        stage.expect(False, "the job should have been there to claim, twice")
        return {"zombie": {"job_id": job_id, "refusals": []}}
    stage.say(f"The reaper takes the job back. {RESCUER} claims it, as attempt {rescued.attempt}, and completes it.")
    completed = stage.store.settle([_report(rescued, RESCUER, Succeeded({"by": RESCUER}))])[0]
    stage.expect(completed.ok, "whoever holds the lease can complete the job")
    _wake(stage, lost)
    stage.expect_history(job_id, LIFE)
    stage.expect(stage.store.job(job_id).result == {"by": RESCUER}, "the zombie should not have changed the result")
    return {"zombie": {"job_id": job_id, "refusals": _show_refusals(stage, job_id)}}


def _claim(stage: Stage, worker: str) -> Claimed | None:
    return next(iter(stage.store.claim(worker, queues=[stage.queue])), None)


def _wait_for_reaper(stage: Stage, job_id: str) -> None:
    """On a store with a fleet of its own, that fleet's reaper may be the one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while stage.store.job(job_id).state is State.RUNNING and time.monotonic() < deadline:
        time.sleep(REAP_EVERY_SECONDS)
        # The fleet's usual lease and heartbeat: with ours, its ordinary pace would be taken for an outage.
        stage.store.reap(REAPER, period=REAP_EVERY_SECONDS)


def _wake(stage: Stage, lost: Claimed) -> None:
    """The zombie goes on as if nothing had happened."""
    reports = [_report(lost, ZOMBIE, outcome) for outcome in (Succeeded({"by": ZOMBIE}), Released("shutting down"))]
    answers = [stage.store.settle([report])[0].status for report in reports]
    answers.append(stage.store.heartbeat([Beat(lost.job_id, lost.attempt, lost.lease_token, ZOMBIE)])[0].status)
    stage.expect(set(answers) == {Status.REFUSED}, "everything the zombie says should be refused")


def _report(claimed: Claimed, worker: str, outcome: Outcome) -> Report:
    return Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome, worker)


def _show_refusals(stage: Stage, job_id: str) -> list[dict[str, Any]]:
    found = sorted(stage.store.refusals(job_id), key=lambda refusal: refusal.verb)
    kept = [(refusal.verb, refusal.reason) for refusal in found] == [(verb, Reason.LEASE_LOST) for verb in REFUSED]
    stage.expect(kept, "each refusal should be on the record")
    stage.say(
        f"The {ZOMBIE} wakes up and goes on as if nothing had happened. It is refused, and that is on the record:"
    )
    stage.show(("verb", "reason", "worker", "attempt"), [(r.verb, r.reason, r.worker, r.attempt) for r in found])
    return [{"verb": r.verb, "reason": r.reason, "worker": r.worker, "count": r.count} for r in found]
