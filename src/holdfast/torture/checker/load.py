"""What the run came to: totals, and a line for every second, counted while the histories are read."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from holdfast.domain.history import EventFacts
from holdfast.domain.lifecycle import CLAIMABLE, TERMINAL, Event
from holdfast.torture.checker.doors import door_of
from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.checker.life import RUNNING, Life, is_lost_lease
from holdfast.torture.moments import moment
from holdfast.torture.results import Load, Second

PRUNED = "pruned"


@dataclass(slots=True)
class _Count:
    """What happened in one second; `running` and `waiting` are by how many more there were at its end."""

    accepted: int = 0
    claimed: int = 0
    ended: int = 0
    lost: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Counting:
    expected: Expectations
    jobs: int = 0
    events: int = 0
    attempts: int = 0
    leases_lost: int = 0
    by_state: Counter[str] = field(default_factory=Counter)
    by_door: Counter[str] = field(default_factory=Counter)
    by_task: Counter[str] = field(default_factory=Counter)
    _seconds: dict[int, _Count] = field(default_factory=dict)

    def feed(self, life: Life) -> None:
        self.jobs += 1
        self.events += len(life.events)
        self.by_state[life.state or PRUNED] += 1
        self.by_task[life.task or "?"] += 1
        for event in life.events:
            self._count(event)

    def _count(self, event: EventFacts) -> None:
        lost, ended = is_lost_lease(event), event.to_state in TERMINAL
        claimed = event.event == Event.CLAIMED
        self.attempts += claimed
        self.leases_lost += lost
        if ended:
            self.by_door[door_of(event.worker)] += 1
        second = self._second(event.at)
        if second is None:
            return
        second.accepted += event.event == Event.ENQUEUED
        second.claimed += claimed
        second.ended += ended
        second.lost += lost
        second.running += (event.to_state == RUNNING) - (event.from_state == RUNNING)
        second.waiting += (event.to_state in CLAIMABLE) - (event.from_state in CLAIMABLE)

    def _second(self, text: str) -> _Count | None:
        at = moment(text)
        if at is None:
            return None
        number = min(max(0, math.floor(at - self.expected.began_at)), self._last)
        return self._seconds.setdefault(number, _Count())

    @property
    def _last(self) -> int:
        """Whatever the clock of an event says, the picture ends with the run."""
        return max(0, math.ceil(self.expected.ended_at - self.expected.began_at) - 1)

    def load(self, acknowledged: int, executions: int, refusals: int, ticks: int) -> Load:
        return Load(
            seconds=self.expected.ended_at - self.expected.began_at,
            jobs=self.jobs,
            events=self.events,
            acknowledged=acknowledged,
            by_state=dict(sorted(self.by_state.items())),
            by_door=dict(sorted(self.by_door.items())),
            by_task=dict(sorted(self.by_task.items())),
            attempts=self.attempts,
            leases_lost=self.leases_lost,
            refusals=refusals,
            executions=executions,
            ticks=ticks,
        )

    def timeline(self) -> tuple[Second, ...]:
        """Every second of the run, the quiet ones too."""
        lines = []
        running = waiting = 0
        for number in range(self._last + 1):
            count = self._seconds.get(number, _Count())
            running += count.running
            waiting += count.waiting
            lines.append(Second(number, count.accepted, count.claimed, count.ended, count.lost, running, waiting))
        return tuple(lines)
