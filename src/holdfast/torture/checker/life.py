"""One job as the ledger has it: what it is, its row and its history; and what the rules ask of a history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.history import EventFacts, RowFacts
from holdfast.domain.lifecycle import OUTCOMES, Event, State
from holdfast.domain.settle import WORKER_LOST

RUNNING = str(State.RUNNING)


@dataclass(slots=True)
class Life:
    job_id: str
    task: str | None = None
    queue: str | None = None
    source: str | None = None
    replay_of: str | None = None
    row: RowFacts | None = None
    events: list[EventFacts] = field(default_factory=list)

    @property
    def state(self) -> str | None:
        """None once it was pruned."""
        if self.row is not None:
            return self.row.state
        return self.events[-1].to_state if self.events else None

    @property
    def claims(self) -> list[EventFacts]:
        return [event for event in self.events if event.event == Event.CLAIMED]

    def outcomes(self, attempt: int, lease: str) -> list[EventFacts]:
        """What ended that lease."""
        return [
            event for event in self.events if is_outcome(event) and (event.attempt, event.lease) == (attempt, lease)
        ]


def is_outcome(event: EventFacts) -> bool:
    return event.event in OUTCOMES and event.from_state == RUNNING


def failed_for(event: EventFacts) -> str | None:
    """The reason of a `failed` event; None where none can be read."""
    return _text(_detail(event).get("reason"))


def error_code(event: EventFacts) -> str | None:
    """The code of a `failed` event's error; None where none can be read."""
    error = _detail(event).get("error")
    return _text(error.get("code")) if isinstance(error, dict) else None


def _detail(event: EventFacts) -> dict[str, Any]:
    try:
        detail = json.loads(event.detail or "{}")
    except ValueError:
        return {}
    return detail if isinstance(detail, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def is_worker_lost(event: EventFacts) -> bool:
    return event.event == Event.FAILED and failed_for(event) == WORKER_LOST


def is_lost_lease(event: EventFacts) -> bool:
    """It ran out: the reaper moved the job back, or ended it because the budget was gone. (Of a runner that died under
    its supervisor, the exit code or the signal is known.)"""
    if event.event == Event.LEASE_LOST:
        return True
    return is_worker_lost(event) and not any(name in (event.detail or "") for name in ('"exit_code"', '"signal"'))
