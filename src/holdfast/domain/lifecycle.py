"""The lifecycle of a job: one table, from which everything else is derived.

The SQL of the verbs, the triggers with which the database itself refuses an illegal move, the checker behind
`holdfast verify` and the diagram in `docs/lifecycle.md` all read `RULES`. Nothing else in the code base decides
what may follow what.

A transition always raises the job's `seq` by one and appends one audit row of that `seq`. `attempt` only ever
grows (it is the fence number); `failures` and `crashes` are charged as the table says and reset by `requeued`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRYABLE = "retryable"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


CLAIMABLE = (State.PENDING, State.RETRYABLE)
ACTIVE = (State.PENDING, State.RUNNING, State.RETRYABLE)
TERMINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Event(StrEnum):
    ENQUEUED = "enqueued"
    REPLACED = "replaced"
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    RETRY_SCHEDULED = "retry_scheduled"
    CRASHED = "crashed"
    LEASE_LOST = "lease_lost"
    FAILED = "failed"
    RELEASED = "released"
    SNOOZED = "snoozed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    PRUNED = "pruned"


class Charge(StrEnum):
    """What a transition does to the job's counters."""

    NOTHING = "nothing"
    ATTEMPT = "attempt + 1, new token"
    FAILURE = "failures + 1"
    CRASH = "crashes + 1"
    FAILURE_OR_CRASH = "failures + 1 or crashes + 1"
    RESET = "failures and crashes back to 0"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table. `None` as a state stands for "no row": before the enqueue, after the pruning."""

    event: Event
    sources: tuple[State | None, ...]
    target: State | None
    charge: Charge
    guard: str


_RUNNING = (State.RUNNING,)

RULES: tuple[Rule, ...] = (
    Rule(Event.ENQUEUED, (None,), State.PENDING, Charge.NOTHING, "unique key free"),
    Rule(
        Event.REPLACED,
        (State.PENDING,),
        State.PENDING,
        Charge.NOTHING,
        "debounce: same key, new payload",
    ),
    Rule(Event.CLAIMED, CLAIMABLE, State.RUNNING, Charge.ATTEMPT, "due, queue not paused, source admits"),
    Rule(Event.SUCCEEDED, _RUNNING, State.SUCCEEDED, Charge.NOTHING, "token"),
    Rule(
        Event.RETRY_SCHEDULED,
        _RUNNING,
        State.RETRYABLE,
        Charge.FAILURE,
        "token; error retryable, budget left",
    ),
    Rule(Event.CRASHED, _RUNNING, State.RETRYABLE, Charge.CRASH, "token; the supervisor saw its runner die"),
    Rule(
        Event.LEASE_LOST,
        _RUNNING,
        State.PENDING,
        Charge.CRASH,
        "reaper; lease expired, tested again in the update",
    ),
    Rule(
        Event.FAILED,
        _RUNNING,
        State.FAILED,
        Charge.FAILURE_OR_CRASH,
        "token or reaper; permanent error, or budget gone",
    ),
    Rule(
        Event.RELEASED,
        _RUNNING,
        State.PENDING,
        Charge.NOTHING,
        "token; drain, deploy, innocent neighbour, outage",
    ),
    Rule(Event.SNOOZED, _RUNNING, State.PENDING, Charge.NOTHING, "token; the job or its source asks for later"),
    Rule(Event.CANCEL_REQUESTED, _RUNNING, State.RUNNING, Charge.NOTHING, "sets the flag, keeps the lease"),
    Rule(Event.CANCELLED, CLAIMABLE, State.CANCELLED, Charge.NOTHING, "operator"),
    Rule(Event.CANCELLED, _RUNNING, State.CANCELLED, Charge.NOTHING, "token or reaper"),
    Rule(
        Event.REQUEUED,
        (State.FAILED, State.CANCELLED),
        State.PENDING,
        Charge.RESET,
        "operator; unique key still free",
    ),
    Rule(Event.PRUNED, TERMINAL, None, Charge.NOTHING, "retention only"),
)


@dataclass(frozen=True, slots=True)
class Move:
    """One legal arrow: a rule with a single source state."""

    event: Event
    source: State | None
    target: State | None
    charge: Charge


MOVES: tuple[Move, ...] = tuple(
    Move(rule.event, source, rule.target, rule.charge) for rule in RULES for source in rule.sources
)

_BY_ARROW: dict[tuple[str, str | None, str | None], Move] = {
    (move.event, move.source, move.target): move for move in MOVES
}

# The events that end a lease: each is the recorded outcome of exactly one attempt.
OUTCOMES = frozenset(move.event for move in MOVES if move.source is State.RUNNING and move.target is not State.RUNNING)

# What an UPDATE typed by hand is taken to mean, where the states alone leave a choice: the arrow that charges
# the least and needs no other party.
MANUAL_EVENTS: dict[tuple[State, State], Event] = {
    (State.PENDING, State.RUNNING): Event.CLAIMED,
    (State.RETRYABLE, State.RUNNING): Event.CLAIMED,
    (State.PENDING, State.CANCELLED): Event.CANCELLED,
    (State.RETRYABLE, State.CANCELLED): Event.CANCELLED,
    (State.RUNNING, State.SUCCEEDED): Event.SUCCEEDED,
    (State.RUNNING, State.RETRYABLE): Event.RETRY_SCHEDULED,
    (State.RUNNING, State.FAILED): Event.FAILED,
    (State.RUNNING, State.PENDING): Event.RELEASED,
    (State.RUNNING, State.CANCELLED): Event.CANCELLED,
    (State.FAILED, State.PENDING): Event.REQUEUED,
    (State.CANCELLED, State.PENDING): Event.REQUEUED,
}


def find_move(event: str, source: str | None, target: str | None) -> Move | None:
    """The legal arrow of that name between those states, or None when the table has no such arrow."""
    return _BY_ARROW.get((event, source, target))
