"""What wakes an idle worker early, seen from its loop."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Protocol

from holdfast.domain.events import Events, WakeUps
from holdfast.domain.worker_states import WorkerState
from holdfast.periodic.part import NEVER
from holdfast.worker.cycle import Cycle

LOOK_EVERY_SECONDS = 0.05


class Changes(Protocol):
    def changed(self) -> bool: ...


class ListenerStatus:
    """How the listener for notifications fares; it tells in its own thread, and the loop passes it on."""

    def __init__(self, events: Events, ring: Callable[[], None]) -> None:
        self._events = events
        self._ring = ring
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()

    def note(self, status: str) -> None:
        self._told.put(str(status))
        self._ring()

    def step(self, _now: float) -> None:
        while not self._told.empty():
            self._events.emit(WakeUps(self._told.get()))

    def wake_at(self) -> float:
        return NEVER


class FileChanges:
    """Looks for changes of an embedded file while there is nothing to do: a question that costs microseconds."""

    def __init__(self, changes: Changes, cycle: Cycle, ring: Callable[[], None]) -> None:
        self._changes = changes
        self._cycle = cycle
        self._ring = ring
        self._look_at = 0.0

    def step(self, now: float) -> None:
        if self._cycle.state is WorkerState.IDLE and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_SECONDS
            if self._changes.changed():
                self._ring()

    def wake_at(self) -> float:
        return self._look_at if self._cycle.state is WorkerState.IDLE else NEVER
