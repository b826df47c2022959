"""The lifecycle table as SQL conditions that both dialects understand."""

from __future__ import annotations

from collections import defaultdict

from holdfast.domain.lifecycle import MANUAL_EVENTS, MOVES, TERMINAL, Charge, Event, State
from holdfast.domain.webhook import DELIVERY_ATTEMPTS, DELIVERY_QUEUE, DELIVERY_TASK, DELIVERY_TIMEOUT_SECONDS

_SAME_LEASE = (
    "coalesce(NEW.lease_token, '') = coalesce(OLD.lease_token, '')"
    " AND coalesce(NEW.lease_owner, '') = coalesce(OLD.lease_owner, '')"
)
_UNCHARGED = "NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes"
_CHARGES = {
    Charge.NOTHING: _UNCHARGED,
    Charge.ATTEMPT: ("NEW.attempt = OLD.attempt + 1 AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes"),
    Charge.FAILURE: ("NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures + 1 AND NEW.crashes = OLD.crashes"),
    Charge.CRASH: ("NEW.attempt = OLD.attempt AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes + 1"),
    Charge.FAILURE_OR_CRASH: (
        "NEW.attempt = OLD.attempt AND NEW.failures + NEW.crashes = OLD.failures + OLD.crashes + 1"
        " AND NEW.failures >= OLD.failures AND NEW.crashes >= OLD.crashes"
    ),
    Charge.RESET: "NEW.attempt = OLD.attempt AND NEW.failures = 0 AND NEW.crashes = 0",
}


def quoted(*values: str) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _arrow_conditions() -> str:
    """CASE arms: for each event, the states it may join and what it must charge."""
    arms: dict[tuple[Event, State | None, Charge], list[str]] = defaultdict(list)
    for move in MOVES:
        if move.source is not None and move.target is not None:
            arms[move.event, move.target, move.charge].append(move.source)
    by_event: dict[Event, list[str]] = defaultdict(list)
    for (event, target, charge), sources in arms.items():
        kept = f" AND {_SAME_LEASE}" if target in sources else ""
        by_event[event].append(
            f"(OLD.state IN ({quoted(*sources)}) AND NEW.state = '{target}' AND {_CHARGES[charge]}{kept})"
        )
    return "\n".join(f"    WHEN '{event}' THEN {' OR '.join(conditions)}" for event, conditions in by_event.items())


# Nothing that the audit log accounts for may change without a transition.
UNCHANGED = (
    f"NEW.seq = OLD.seq AND NEW.state = OLD.state AND NEW.transition = OLD.transition AND {_UNCHARGED}"
    f" AND NEW.updated_at = OLD.updated_at AND {_SAME_LEASE}"
    " AND (NEW.finished_at = OLD.finished_at OR (NEW.finished_at IS NULL AND OLD.finished_at IS NULL))"
    " AND (NEW.cancel_requested_at IS NULL) = (OLD.cancel_requested_at IS NULL)"
)
LEGAL_MOVE = (
    "NEW.seq = OLD.seq + 1 AND NEW.updated_at >= OLD.updated_at AND CASE NEW.transition\n"
    f"{_arrow_conditions()}\n    ELSE false END"
)
LEGAL_UPDATE = f"NEW.id = OLD.id AND (({UNCHANGED}) OR ({LEGAL_MOVE}))"
MANUAL_UPDATE = (
    "NEW.seq = OLD.seq AND (NEW.state <> OLD.state"
    " OR (NEW.state = 'running' AND OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL))"
)
FRESH_ROW = (
    "NEW.state = 'pending' AND NEW.seq = 1 AND NEW.transition = 'enqueued'"
    " AND NEW.attempt = 0 AND NEW.failures = 0 AND NEW.crashes = 0"
)
IS_TERMINAL = f"OLD.state IN ({quoted(*TERMINAL)})"

# The event that a hand-typed change of state stands for; no arm means no such arrow, and the guard refuses.
MANUAL_EVENT = (
    "CASE OLD.state || '>' || NEW.state\n"
    + "\n".join(f"    WHEN '{source}>{target}' THEN '{event}'" for (source, target), event in MANUAL_EVENTS.items())
    + "\n    WHEN 'running>running' THEN 'cancel_requested'\n    ELSE 'none' END"
)
CHARGES_FAILURE = (
    f"OLD.state = 'running' AND NEW.state IN ('{State.RETRYABLE}', '{State.FAILED}')"
    " AND NEW.failures = OLD.failures AND NEW.crashes = OLD.crashes"
)
REQUEUES = f"OLD.state IN ({quoted(*TERMINAL)}) AND NEW.state = '{State.PENDING}'"
ENDS = f"NEW.state IN ({quoted(*TERMINAL)})"

# The job that delivers a webhook. Due at the very moment of the end that it tells of; a spec hash it has none, for
# nobody asks whether the same was sent before.
ENDS_WITH_WEBHOOK = f"NEW.webhook IS NOT NULL AND NEW.state <> OLD.state AND {ENDS}"
DELIVERY_COLUMNS = "task, queue, max_attempts, timeout_seconds, traceparent, run_after, created_at, updated_at, payload"
DELIVERY_VALUES = (
    f"'{DELIVERY_TASK}', '{DELIVERY_QUEUE}', {DELIVERY_ATTEMPTS}, {DELIVERY_TIMEOUT_SECONDS}, NEW.traceparent,"
    " NEW.updated_at, NEW.updated_at, NEW.updated_at"
)
