"""Last scene: what became of everything, and whether the log bears it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.cli.demo.breaker import CLOSED, OPENED
from holdfast.cli.demo.killed import payload
from holdfast.cli.demo.names import SOURCES
from holdfast.cli.demo.prices import moves
from holdfast.cli.demo.stage import Stage
from holdfast.cli.verify import check
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State

# How attempts end that do not succeed, in words.
ENDS = {
    "retry_scheduled": "failed and were tried again",
    "snoozed": "put off, free of charge",
    "lease_lost": "lost with their worker",
    "released": "given back, free of charge",
}


def play(stage: Stage, killed: str) -> dict[str, Any]:
    voice, store = stage.voice, stage.store
    voice.scene("6. What is left")
    stage.wait(lambda: stage.ended(killed), "the killed worker's job ends")
    found = store.events(killed)
    voice.say(f"The model run has succeeded in spite of it all: {' → '.join(event.event for event in found)}.")
    again = stage.enqueue("run_model", payload(stage), unique=True, reuse_seconds=3600.0)
    stage.expect(again.id == killed, "the same run, asked for again, should be answered by the one there is")
    voice.say("Asked for once more, the same run is answered from the record: nothing is computed twice.")
    stage.wait(lambda: all(stage.idle(queue) for queue in stage.names.queues), "every job has ended")
    jobs = list(stage.jobs())
    states = Counter(job.state for job in jobs)
    stage.expect(states == {State.SUCCEEDED: len(jobs)}, f"every job should have succeeded, not {_told(states)}")
    settled = _settled(stage, jobs)
    summary = _summary(stage, jobs, settled)
    voice.show(("what", "how many"), _lines(states, settled, summary))
    verdict = check(store)
    stage.expect(verdict.ok, "verify should find nothing wrong")
    violations = len(verdict.violations) + verdict.unlisted
    told = f"verify: {verdict.jobs:,} jobs, {verdict.events:,} events, {violations} violations."
    voice.say(told, "Every step of every job, checked against the rules: one holder at a time, one outcome.", "bold")
    return {
        "settled": dict(sorted(settled.items())),
        "states": {str(state): count for state, count in sorted(states.items())},
        "summary": summary,
        "verify": verdict,
    }


def _settled(stage: Stage, jobs: Sequence[Job]) -> Counter[str]:
    """How attempts ended."""
    events = (event for job in jobs for event in stage.store.events(job.id))
    return Counter(e.event for e in events if e.from_state == State.RUNNING and e.to_state != State.RUNNING)


def _summary(stage: Stage, jobs: Sequence[Job], settled: Counter[str]) -> dict[str, int]:
    store = stage.store
    return {
        "jobs": len(jobs),
        "attempts": sum(job.attempt for job in jobs),
        "records": sum(len(store.records(job_id=job.id, limit=1_000).items) for job in jobs),
        "leases_lost": settled["lease_lost"],
        "refusals": sum(refusal.count for job in jobs for refusal in store.refusals(job.id)),
        "breaker_moves": sum(len(moves(stage, source, OPENED, CLOSED)) for source in SOURCES),
    }


def _lines(states: Counter[State], settled: Counter[str], summary: dict[str, int]) -> list[tuple[str, object]]:
    ends = [f"{number} {ENDS.get(name, name)}" for name, number in settled.most_common()]
    return [
        ("jobs", _told(states)),
        ("attempts", f"{summary['attempts']}: {', '.join(ends)}"),
        ("records", f"{summary['records']} price points and valuations, each kept once"),
        ("leases lost", f"{summary['leases_lost']}, of a worker that was killed and one that slept"),
        ("refusals", f"{summary['refusals']} late reports, none of which changed anything"),
        ("breaker", f"{summary['breaker_moves']} moves"),
    ]


def _told(states: Counter[State]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
