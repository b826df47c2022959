"""What the scenes share: the store, a queue of their own, a voice, and the promises that turned out broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.cli import output

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

PATIENCE_SECONDS = 30.0


@dataclass(slots=True)
class Stage:
    store: SqlStore
    database: str
    queue: str
    silent: bool = False
    broken_promises: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        if not self.silent:
            output.line(text)

    def show(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not self.silent:
            output.table(headers, rows, indent=2)

    def expect(self, kept: bool, promise: str) -> None:
        if not kept:
            self.broken_promises.append(promise)

    def expect_history(self, job_id: str, expected: tuple[str, ...]) -> None:
        found = _without_returns([event.event for event in self.store.events(job_id)])
        self.expect(found == expected, f"job {job_id} should have lived {_arrows(expected)}, not {_arrows(found)}")


def _without_returns(events: list[str]) -> tuple[str, ...]:
    """A worker may give back what it claimed ahead and cannot run soon: that is free, and no part of the story."""
    while "released" in events:
        place = events.index("released")
        events = events[: place - 1] + events[place + 1 :]
    return tuple(events)


def _arrows(events: tuple[str, ...]) -> str:
    return " → ".join(events) or "nothing"
