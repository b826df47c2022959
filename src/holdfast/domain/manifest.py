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


# What is announced of a task's options; a newer worker may have announced more than we know.
ANNOUNCED = (
    "queue",
    "priority",
    "max_attempts",
    "max_crashes",
    "retry",
    "timeout_seconds",
    "lease_seconds",
    "source",
    "webhook",
)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task. `defaults` are options of `NewJob` (queue, priority, max_attempts, max_crashes, retry as JSON,
    timeout_seconds, lease_seconds, source, webhook), and only those that the task's author named."""

    name: str
    version: str | None = None
    kind: Kind = Kind.SYNC
    on_lost_lease: OnLostLease = OnLostLease.KILL
    defaults: dict[str, Any] = field(default_factory=dict)

    def job_options(self) -> dict[str, Any]:
        """For whoever enqueues without the task's code at hand."""
        return {**{name: self.defaults[name] for name in ANNOUNCED if name in self.defaults}, "version": self.version}

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


def defaults_of(task: TaskInfo | None, lease_seconds: float) -> dict[str, Any]:
    """What a job gets that its caller does not say: as the task's author named it, else the lease of the settings."""
    return {"lease_seconds": lease_seconds, **({} if task is None else task.job_options())}
