"""Last scene: what became of the jobs, and whether the log bears it out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.cli.demo import hundred
from holdfast.cli.demo.stage import Stage
from holdfast.cli.verify import check
from holdfast.domain.lifecycle import State

EXPECTED = {State.SUCCEEDED: hundred.COUNT - 2 + 1, State.FAILED: 1, State.CANCELLED: 1}  # + 1: the zombie's


def play(stage: Stage) -> dict[str, Any]:
    found = Counter(job.state for job in stage.store.jobs(queue=stage.queue, limit=1_000).items)
    stage.expect(found == EXPECTED, f"the jobs should have ended as {_told(EXPECTED)}, not as {_told(found)}")
    verdict = check(stage.store)
    stage.expect(verdict.ok, "verify should find nothing wrong")
    stage.say("What became of the jobs:")
    stage.show(("state", "jobs"), sorted(found.items()))
    stage.say(f"verify: {verdict.jobs:,} jobs, {verdict.events:,} events, {len(verdict.violations)} violations.")
    return {"states": {str(state): count for state, count in sorted(found.items())}, "verify": verdict}


def _told(states: dict[State, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
