"""How what wakes an idle worker early fares, seen from its loop."""

from __future__ import annotations

import queue
from collections.abc import Callable

from holdfast.domain.events import Events, WakeUps
from holdfast.periodic.part import NEVER


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
