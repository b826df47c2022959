"""Scene four: a worker that was only asleep wakes up, goes on as if nothing had happened, and is refused.

This is what a long garbage collection, a suspended laptop or a network partition looks like from the store. This
process plays the sleeper: it claims a job before any other worker is there, keeps its lease, and stops keeping it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from holdfast.cli.demo.names import GROUP
from holdfast.cli.demo.stage import LEASE_SECONDS, Stage
from holdfast.domain.answers import Beat, Reason, Status, Verb
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Released, Report, Succeeded
from holdfast.stores.sql_store import SqlStore

ZOMBIE = "zombie"
SPEC = {"growth": 0.1, "noise": 0.05}
REFUSED = (Verb.COMPLETE, Verb.HEARTBEAT, Verb.RELEASE)


class Sleeper:
    """Holds one job, in a thread that heartbeats until it falls asleep."""

    def __init__(self, store: SqlStore, queue: str, name: str) -> None:
        self._store = store
        self._name = name
        wanted = NewJob(
            task=f"{GROUP}.run_model", payload={"spec": SPEC}, queue=queue, version="1", lease_seconds=LEASE_SECONDS
        )
        self.job_id = store.enqueue(wanted).id
        self._claimed: Claimed
        [self._claimed] = store.claim(name, queues=[queue])
        self._asleep = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def fall_asleep(self) -> None:
        self._asleep.set()
        self._thread.join()

    def wake(self) -> list[Status]:
        """It reports as it would have: done; then it gives the job back; then it asks for more time."""
        claimed = self._claimed
        report = (claimed.job_id, claimed.attempt, claimed.lease_token)
        outcomes = (Succeeded({"by": ZOMBIE}), Released("shutting down"))
        answers = [self._store.settle([Report(*report, outcome, self._name)])[0].status for outcome in outcomes]
        return [*answers, self._store.heartbeat([self._beat()])[0].status]

    def _keep(self) -> None:
        while not self._asleep.wait(LEASE_SECONDS / 6):
            with suppress(HoldfastError):
                self._store.heartbeat([self._beat()])

    def _beat(self) -> Beat:
        return Beat(self._claimed.job_id, self._claimed.attempt, self._claimed.lease_token, self._name)


def play(stage: Stage, sleeper: Sleeper, heir: str) -> dict[str, Any]:
    """The sleeper has been asleep since the other worker was killed."""
    voice, job_id = stage.voice, sleeper.job_id
    voice.scene("4. A worker that was not dead, only asleep")
    voice.say(
        f"A third worker, {ZOMBIE} (played by this terminal), has held a job since the start. It went silent, too."
    )
    stage.await_event(job_id, "lease_lost", 1, "the sleeper's lease runs out")
    stage.wait(lambda: stage.ended(job_id), f"{heir} does the sleeper's job")
    done = stage.store.job(job_id)
    voice.say(f"Its lease ran out as well. {heir} has done the job, as attempt {done.attempt}.")
    answers = sleeper.wake()
    stage.expect(set(answers) == {Status.REFUSED}, "everything the zombie says should be refused")
    found = sorted(stage.store.refusals(job_id), key=lambda refusal: refusal.verb)
    kept = [(refusal.verb, refusal.reason) for refusal in found] == [(verb, Reason.LEASE_LOST) for verb in REFUSED]
    stage.expect(kept, "each refusal should be on the record")
    unchanged = done.state is State.SUCCEEDED and stage.store.job(job_id) == done
    stage.expect(unchanged, "the zombie should have changed nothing")
    told = f"Now {ZOMBIE} wakes up and reports that it is done. It is refused, and that is on the record, too:"
    voice.say(told, style="bold")
    voice.show(
        ("it said", "refused because", "worker", "attempt"), [(r.verb, r.reason, ZOMBIE, r.attempt) for r in found]
    )
    voice.say("The result stays as it was: a job has one outcome.")
    refusals = [{"verb": r.verb, "reason": r.reason, "worker": ZOMBIE, "count": r.count} for r in found]
    return {"zombie": {"job_id": job_id, "refusals": refusals}}
