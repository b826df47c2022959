"""Schedules: declared, changed, fired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.job import (
    DEFAULT_LEASE_SECONDS,
    Enqueued,
)
from holdfast.domain.schedule import Declaration, Fired, Outcome, Schedule, ScheduleFailure, Tick
from holdfast.stores.database import Database
from holdfast.stores.verbs import (
    firing,
    scheduling,
)


class SchedulePart:
    database: Database
    _claimable: Callable[[], None]

    def announce_schedules(self, declared: Sequence[Declaration]) -> tuple[ScheduleFailure, ...]:
        """What a worker's code declares, when it starts; those that could not follow it."""
        return scheduling.announce(self.database, declared)

    def keep_schedules(self, declared: Sequence[Declaration]) -> None:
        """They are still declared: says so where nothing differs, and changes nothing else."""
        scheduling.touch(self.database, declared)

    def fire_schedules(self, holder: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Fired:
        """Fire what is due. The lease is for jobs whose task and schedule name none."""
        fired = firing.fire_schedules(self.database, holder, lease_seconds)
        if any(tick.outcome == Outcome.FIRED for tick in fired.ticks):
            self._claimable()
        return fired

    def add_schedule(self, schedule: Declaration) -> Schedule:
        return scheduling.add(self.database, schedule)

    def set_schedule(self, name: str, **changes: Any) -> Schedule:
        """Change what is named, over what code declares, until `reset_schedule`."""
        return scheduling.change(self.database, name, changes)

    def reset_schedule(self, name: str) -> Schedule:
        return scheduling.reset(self.database, name)

    def pause_schedule(self, name: str) -> Schedule:
        return scheduling.pause(self.database, name)

    def resume_schedule(self, name: str) -> Schedule:
        return scheduling.resume(self.database, name)

    def remove_schedule(self, name: str) -> bool:
        """Answers whether code had declared it: then the next worker that starts brings it back."""
        return scheduling.remove(self.database, name)

    def run_schedule_now(self, name: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Enqueued:
        answer = scheduling.run_now(self.database, name, lease_seconds)
        if answer.created:
            self._claimable()
        return answer

    def schedules(self) -> list[Schedule]:
        """Those whose rows can be read; `unreadable_schedules` has the others."""
        return scheduling.schedules(self.database)

    def unreadable_schedules(self) -> list[ScheduleFailure]:
        return scheduling.unreadable(self.database)

    def schedule(self, name: str) -> Schedule:
        return scheduling.schedule(self.database, name)

    def ticks(self, name: str, limit: int = 50) -> list[Tick]:
        """The newest first."""
        return scheduling.ticks(self.database, name, limit)
