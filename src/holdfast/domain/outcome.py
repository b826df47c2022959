"""How an attempt can end, as a closed union; and the report that carries it.

`LeaseLost` is the reaper's alone: no worker can report it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.artifacts import Artifact
from holdfast.domain.hot import hot_value
from holdfast.domain.looks import Looks


@dataclass(frozen=True, slots=True)
class JobError:
    code: str
    message: str
    stack: str | None = None
    retryable: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "stack": self.stack,
            "retryable": self.retryable,
        }


@hot_value(frozen=True, slots=True)
class Usage:
    """What an attempt cost, as measured by whoever ran it."""

    duration_ms: int | None = None
    cpu_ms: int | None = None
    max_rss_kb: int | None = None

    def to_json(self) -> dict[str, int]:
        figures: dict[str, int] = {}
        if self.duration_ms is not None:
            figures["duration_ms"] = self.duration_ms
        if self.cpu_ms is not None:
            figures["cpu_ms"] = self.cpu_ms
        if self.max_rss_kb is not None:
            figures["max_rss_kb"] = self.max_rss_kb
        return figures


@hot_value(frozen=True, slots=True)
class Succeeded:
    result: Any = None
    result_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """`told`: another source was told of it, so it says nothing about the job's own."""

    error: JobError
    exit_code: int | None = None
    told: bool = False


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran the job died: by a signal, for memory, or without a word."""

    message: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    reason: str = "released"


@dataclass(frozen=True, slots=True)
class Snoozed:
    """`throttled`: the job's own source asked to be left alone for that long, and every other job of it waits too."""

    delay_seconds: float
    reason: str = "snoozed"
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class LeaseLost:
    pass


Outcome = Succeeded | Failed | Crashed | Released | Snoozed | Cancelled
Ending = Outcome | LeaseLost


@hot_value(frozen=True, slots=True)
class Report:
    """A worker's word about one attempt. The token authorises it, the attempt number names it."""

    job_id: str
    attempt: int
    lease_token: str = field(repr=False)
    outcome: Outcome
    worker: str | None = None
    usage: Usage = field(default_factory=Usage)
    progress: Any = None  # the last word of how far it came, if no heartbeat has told it
    artifacts: tuple[Artifact, ...] = ()  # what the attempt saved: recorded if, and only if, the report is applied
    credential: str = ""  # of whoever claimed, if that was over HTTP
    message_id: str | None = None  # of the message that the claim came with
    cache: Looks = field(default_factory=dict)  # what it found in the caches of sources, and what not
