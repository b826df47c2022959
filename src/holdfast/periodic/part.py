"""What the supervisor is made of: parts that are stepped whenever anything happened, and say when to look again."""

from __future__ import annotations

from typing import Protocol

NEVER = float("inf")


class Part(Protocol):
    def step(self, now: float) -> None: ...

    def wake_at(self) -> float:
        """The time at which it has something to do even if nothing happens."""
        ...
