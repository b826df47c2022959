"""What a runner tells its supervisor about the tasks it can run; the supervisor imports no user code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    SYNC = "sync"
    ASYNC = "async"
    COMMAND = "command"


class OnLostLease(StrEnum):
    KILL = "kill"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task. `defaults` are options of `NewJob` (queue, priority, max_attempts, max_crashes, retry as JSON,
    timeout_seconds, lease_seconds, source), and only those that the task's author named."""

    name: str
    version: str | None = None
    kind: Kind = Kind.SYNC
    on_lost_lease: OnLostLease = OnLostLease.KILL
    defaults: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "kind": str(self.kind),
            "on_lost_lease": str(self.on_lost_lease),
            "defaults": self.defaults,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TaskInfo:
        return cls(
            value["name"],
            value["version"],
            Kind(value["kind"]),
            OnLostLease(value["on_lost_lease"]),
            value["defaults"],
        )
