"""Where every job comes from: nothing is in the ledger that nobody asked for.

A client's intention is written before its call, so every job that a client made has one. A tick names its job. A
replay names the job whose spec it runs again. A delivery of a webhook was made by the database itself, in the
transaction that ended a job, and tells of which job and of what end: of one end there is one delivery at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life
from holdfast.torture.checker.rules import Rule
from holdfast.torture.evidence import Told


class Delivery(NamedTuple):
    job_id: str
    of_job: str | None
    end: str | None  # the state that the job ended in


class Origins:
    """Fed with every job; what only all of them tell is checked at the end."""

    def __init__(
        self, expected: Expectations, made_by_ticks: Collection[str], deliveries: Collection[Delivery]
    ) -> None:
        self._scheduled = {schedule.task for schedule in expected.schedules}
        self._made_by_ticks = made_by_ticks
        self._deliveries = deliveries
        self._told_of = {delivery.of_job for delivery in deliveries}
        self._ends: Counter[tuple[str | None, str | None]] = Counter()
        self.replays: dict[str, str] = {}  # job: the one that it replays

    def feed(self, life: Life, told: Told | None, found: Findings) -> None:
        if life.job_id in self._told_of:
            self._ends.update((life.job_id, event.to_state) for event in life.events if event.from_state is not None)
        if life.task == DELIVERY_TASK:
            return
        found.held(Rule.PHANTOM)
        if (told is not None and told.intended) or life.job_id in self._made_by_ticks:
            return
        if life.replay_of is not None:
            self.replays[life.job_id] = life.replay_of
        elif life.task in self._scheduled:
            fault = f"a job of {life.task} that no client asked for, and no tick of its schedule names"
            found.add(Rule.TICK_TWICE, fault, life.job_id, length=len(life.events))
        else:
            fault = f"a job of {life.task} that no client asked for"
            found.add(Rule.PHANTOM, fault, life.job_id, length=len(life.events))

    def finish(self, known: Collection[str], found: Findings) -> None:
        """`known`: those of the replayed jobs that the ledger has."""
        for job_id, original in self.replays.items():
            if original not in known:
                found.add(Rule.PHANTOM, f"the replay of {original}, of which nothing is known", job_id)
        left = self._ends
        for delivery in self._deliveries:
            found.held(Rule.PHANTOM)
            end = delivery.of_job, delivery.end
            left[end] -= 1
            if left[end] < 0:
                fault = f"a delivery for an end ({delivery.end}) of {delivery.of_job} that it did not come to so often"
                found.add(Rule.PHANTOM, fault, delivery.job_id)
