"""Prove that a job's history is a life the lifecycle allows, and that the job's row is where it ends.

The audit log is the evidence, `domain/lifecycle.py` the law. A checker is fed one job's events in order of
`seq` and then its row (or None). It keeps a fold of what it has seen and never an event, so a history of any
length costs the same memory.

One damage should be reported once, under its own rule. So whatever a faulty event leaves in doubt is marked
as not known, taken from the next good event, and until then not compared. A rule is reported at most once per
job.

Times are texts of one fixed width in UTC: the order of the texts is the order of the moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.lifecycle import TERMINAL, Charge, Event, State, find_move
from holdfast.domain.settle import WORKER_LOST


class HistoryRule(StrEnum):
    NO_HISTORY = "no_history"
    NO_ROW = "no_row"
    AFTER_PRUNED = "after_pruned"
    GAP = "gap"
    UNKNOWN_EVENT = "unknown_event"
    ILLEGAL_TRANSITION = "illegal_transition"
    BROKEN_CHAIN = "broken_chain"
    TIME_ORDER = "time_order"
    LEASE_OVERLAP = "lease_overlap"
    CLAIM_WITHOUT_LEASE = "claim_without_lease"
    WRONG_LEASE = "wrong_lease"
    ATTEMPT_NOT_GROWING = "attempt_not_growing"
    TWO_OUTCOMES = "two_outcomes"
    FOLD = "fold"
    COUNTERS = "counters"
    UPDATED_AT = "updated_at"
    FINISHED_AT = "finished_at"
    RUNNING_WITHOUT_LEASE = "running_without_lease"
    LEASE_WITHOUT_RUNNING = "lease_without_running"
    VANISHED = "vanished"


SENTENCES: dict[HistoryRule, str] = {
    HistoryRule.NO_HISTORY: "Every job has a history.",
    HistoryRule.NO_ROW: "A history without a job ends in `pruned`.",
    HistoryRule.AFTER_PRUNED: "Nothing comes after `pruned`: no event, and no row.",
    HistoryRule.GAP: "The events of a job are numbered 1, 2, 3, … up to the `seq` of its row.",
    HistoryRule.UNKNOWN_EVENT: "Every event is one of the lifecycle's.",
    HistoryRule.ILLEGAL_TRANSITION: "Every event joins two states that the lifecycle lets it join.",
    HistoryRule.BROKEN_CHAIN: "Every event leaves the state that the event before it reached.",
    HistoryRule.TIME_ORDER: "No event is earlier than the event before it.",
    HistoryRule.LEASE_OVERLAP: "A job is claimed only after its previous lease has ended.",
    HistoryRule.CLAIM_WITHOUT_LEASE: "Every claim names the lease it gave out.",
    HistoryRule.WRONG_LEASE: "What befalls a running job is recorded under its current lease and attempt.",
    HistoryRule.ATTEMPT_NOT_GROWING: "A claim raises the attempt by exactly one; nothing else changes it.",
    HistoryRule.TWO_OUTCOMES: "A job ends once; only a requeue lets it end again.",
    HistoryRule.FOLD: "State, attempt, seq, transition, lease and owner of the row are those in the log.",
    HistoryRule.COUNTERS: "Failures and crashes of the row are those the log counts since the last requeue.",
    HistoryRule.UPDATED_AT: "The row was last updated when its last event happened.",
    HistoryRule.FINISHED_AT: "A job has a `finished_at` if and only if it has ended.",
    HistoryRule.RUNNING_WITHOUT_LEASE: "A running job has a lease token and an expiry.",
    HistoryRule.LEASE_WITHOUT_RUNNING: "A job that is not running has no token, no expiry and no owner.",
    HistoryRule.VANISHED: (
        "A job that a schedule's tick, an artifact or a record names has a row or a history, unless what names it is as"
        " old as what retention has retired."
    ),
}


@dataclass(frozen=True, slots=True)
class Violation:
    job_id: str
    rule: HistoryRule
    detail: str


# Tuples and not dataclasses: there are millions of them, and a tuple is made in a fifth of the time.
class EventFacts(NamedTuple):
    """What is checked of one audit row."""

    job_id: str
    seq: int
    at: str
    event: str
    from_state: str | None
    to_state: str | None
    attempt: int
    worker: str | None
    lease: str | None
    detail: str | None  # the JSON text; read only for `failed`, so it may be left out of all others


class RowFacts(NamedTuple):
    """What is checked of a job's row."""

    job_id: str
    state: str
    seq: int
    transition: str
    attempt: int
    failures: int
    crashes: int
    lease_owner: str | None
    lease_token: str | None
    has_expiry: bool
    is_finished: bool
    updated_at: str


class History(NamedTuple):
    """A job's row, None when there is none, and its events in order of `seq`, to be read once and at once."""

    job_id: str
    row: RowFacts | None
    events: Iterable[EventFacts]


class Reference(NamedTuple):
    """Something speaks of a job that has neither a row nor a history."""

    job_id: str
    at: str  # when it was written: then the job was there
    by: str


def judge_reference(reference: Reference, retired_through: str | None) -> Violation | None:
    """`retired_through` is when the youngest of all retired jobs was pruned, read after the job was found missing. What
    was written later speaks of a job that was pruned later still, if it was; so nobody has retired its history."""
    if retired_through is not None and reference.at <= retired_through:
        return None
    until = "no history was ever retired" if retired_through is None else f"histories are retired to {retired_through}"
    detail = f"{reference.by} speaks of it at {reference.at}, it has no row and no history, and {until}"
    return Violation(reference.job_id, HistoryRule.VANISHED, detail)


_EVENTS = frozenset(str(event) for event in Event)
_TERMINAL = frozenset(str(state) for state in TERMINAL)
_RUNNING = str(State.RUNNING)
_UNCOUNTED = (Charge.NOTHING, Charge.ATTEMPT)
# The reasons that `settle` gives for a failure. With any other (an UPDATE typed by hand has none) the log
# leaves open which of the two counters was charged.
_FAILURE_REASONS = ("permanent", "max_attempts")


class HistoryChecker:
    """Feed it every event of one job, in order of `seq`; `finish` tells what is wrong."""

    __slots__ = (
        "_at",
        "_attempt",
        "_attempt_known",
        "_counters_known",
        "_crashes",
        "_failures",
        "_lease",
        "_lease_known",
        "_name",
        "_owner",
        "_pruned",
        "_seq",
        "_state",
        "_state_known",
        "_time_known",
        "_undecided",
        "_violations",
        "events",
        "job_id",
    )

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.events = 0
        self._violations: dict[HistoryRule, Violation] = {}
        self._seq = 0
        self._at = ""
        self._name = ""
        self._state: str | None = None
        self._attempt = 0
        self._lease: str | None = None
        self._owner: str | None = None
        self._failures = 0
        self._crashes = 0
        self._undecided = 0  # charged, and only the row can tell whether as a failure or as a crash
        self._pruned = False
        self._state_known = True
        self._attempt_known = True
        self._lease_known = True
        self._counters_known = True
        self._time_known = True

    def feed(self, event: EventFacts) -> None:
        _, seq, at, name, source, target, _, _, _, detail = event
        self.events += 1
        if self._pruned:
            self._report(HistoryRule.AFTER_PRUNED, f"{name} (seq {seq}) comes after pruned")
            return
        if seq != self._seq + 1:
            self._report(HistoryRule.GAP, f"seq {seq} ({name}) where seq {self._seq + 1} was expected")
            self._forget()
        self._time_known = at >= self._at
        if not self._time_known:
            self._report(HistoryRule.TIME_ORDER, f"{name} (seq {seq}) at {at} follows an event at {self._at}")
        move = find_move(name, source, target)
        if move is None or (source != self._state and self._state_known):
            rule = self._name_fault(name, source, target, legal=move is not None)
            self._report(rule, f"{name} (seq {seq}) from {source} to {target}{self._standing()}")
            self._forget()
        else:
            if source == _RUNNING:
                self._follow_lease(event)
            elif target == _RUNNING:
                self._follow_claim(event)
            else:
                self._follow_outside(event)
            if move.charge not in _UNCOUNTED:
                self._charge(move.charge, detail)
            self._state_known = True
            self._pruned = target is None
        self._seq = seq
        self._at = at
        self._name = name
        self._state = target

    def finish(self, row: RowFacts | None) -> tuple[Violation, ...]:
        if row is None:
            if self._name != Event.PRUNED:
                self._report(HistoryRule.NO_ROW, f"the history ends in {self._name} (seq {self._seq}), the row is gone")
        elif self.events == 0:
            self._report(HistoryRule.NO_HISTORY, f"the job is {row.state} at seq {row.seq}, the log has no event of it")
        elif self._pruned:
            self._report(HistoryRule.AFTER_PRUNED, f"the job is {row.state}, its history ends in pruned")
        else:
            self._check_against_log(row)
            # A row in the wrong state has the wrong columns for it, too.
            if row.state == self._state or HistoryRule.FOLD not in self._violations:
                self._check_columns(row)
        return tuple(self._violations.values())

    def _report(self, rule: HistoryRule, detail: str) -> None:
        if rule not in self._violations:
            self._violations[rule] = Violation(self.job_id, rule, detail)

    def _forget(self) -> None:
        """After a fault: what the next good event says is taken as it is."""
        self._state_known = False
        self._attempt_known = False
        self._lease_known = False
        self._counters_known = False

    def _standing(self) -> str:
        if not self._state_known:
            return ""
        return f", while the job was {self._state}" if self._state is not None else ", while there was no job yet"

    def _name_fault(self, name: str, source: str | None, target: str | None, *, legal: bool) -> HistoryRule:
        """The rule that best names an event which does not continue the history."""
        if name not in _EVENTS:
            return HistoryRule.UNKNOWN_EVENT
        if self._state_known:
            if name == Event.CLAIMED and target == self._state == _RUNNING:
                return HistoryRule.LEASE_OVERLAP
            if self._state in _TERMINAL and target in _TERMINAL:
                return HistoryRule.TWO_OUTCOMES
        if not legal:
            return HistoryRule.ILLEGAL_TRANSITION
        return HistoryRule.WRONG_LEASE if source == _RUNNING else HistoryRule.BROKEN_CHAIN

    def _follow_claim(self, event: EventFacts) -> None:
        grown = event.attempt == self._attempt + 1 or not self._attempt_known
        if not grown:
            detail = f"claimed (seq {event.seq}) as attempt {event.attempt} after attempt {self._attempt}"
            self._report(HistoryRule.ATTEMPT_NOT_GROWING, detail)
        if event.lease is None:
            self._report(HistoryRule.CLAIM_WITHOUT_LEASE, f"claimed (seq {event.seq}) names no lease")
        self._attempt = event.attempt
        self._attempt_known = grown
        self._lease = event.lease
        self._lease_known = event.lease is not None
        self._owner = event.worker

    def _follow_lease(self, event: EventFacts) -> None:
        wrong = "lease" if self._lease_known and event.lease != self._lease else ""
        if self._attempt_known and event.attempt != self._attempt:
            wrong = "attempt"
        if wrong:
            detail = f"{event.event} (seq {event.seq}) names another {wrong} than claim {self._attempt}"
            self._report(HistoryRule.WRONG_LEASE, detail)
        if not self._attempt_known:
            self._attempt = event.attempt
            self._attempt_known = True
        if event.to_state != _RUNNING:
            self._lease = None
            self._lease_known = True
        else:
            self._owner = event.worker
            if not self._lease_known:
                self._lease = event.lease
                self._lease_known = True

    def _follow_outside(self, event: EventFacts) -> None:
        """An event of a job that nobody holds: it has no lease and moves no attempt."""
        if event.lease is not None:
            detail = f"{event.event} (seq {event.seq}) names a lease, and none was current"
            self._report(HistoryRule.WRONG_LEASE, detail)
        if not self._attempt_known:
            self._attempt = event.attempt
            self._attempt_known = True
        elif event.attempt != self._attempt:
            detail = f"{event.event} (seq {event.seq}) names attempt {event.attempt} after attempt {self._attempt}"
            self._report(HistoryRule.ATTEMPT_NOT_GROWING, detail)
        self._lease = None
        self._lease_known = True

    def _charge(self, charge: Charge, detail: str | None) -> None:
        if charge is Charge.FAILURE_OR_CRASH:
            charge = _charge_of_failed(detail)
        if charge is Charge.FAILURE:
            self._failures += 1
        elif charge is Charge.CRASH:
            self._crashes += 1
        elif charge is Charge.FAILURE_OR_CRASH:
            self._undecided += 1
        else:
            self._failures = self._crashes = self._undecided = 0
            self._counters_known = True

    def _check_against_log(self, row: RowFacts) -> None:
        if row.seq != self._seq and HistoryRule.GAP in self._violations:
            return  # it is known that events are missing; what the row says to the rest proves nothing more
        if row.seq > self._seq:
            self._report(HistoryRule.GAP, f"the row is at seq {row.seq}, the log ends at seq {self._seq}")
            return
        differences = self._differences(row) if self._state_known else []
        if differences:
            self._report(HistoryRule.FOLD, "; ".join(differences))
        if row.seq == self._seq:
            self._check_update(row)

    def _differences(self, row: RowFacts) -> list[str]:
        found = []
        if row.seq != self._seq:
            found.append(f"seq is {row.seq}, in the log {self._seq}")
        if row.state != self._state:
            found.append(f"state is {row.state}, in the log {self._state}")
        if row.transition != self._name:
            found.append(f"transition is {row.transition}, in the log {self._name}")
        if self._attempt_known and row.attempt != self._attempt:
            found.append(f"attempt is {row.attempt}, in the log {self._attempt}")
        if row.state == self._state == _RUNNING:
            if self._lease_known and row.lease_token is not None and row.lease_token != self._lease:
                found.append("the lease is not the one in the log")
            if row.lease_owner != self._owner:
                found.append(f"lease_owner is {row.lease_owner}, in the log {self._owner}")
        return found

    def _check_update(self, row: RowFacts) -> None:
        if self._time_known and row.updated_at != self._at:
            detail = f"updated_at is {row.updated_at}, the last event ({self._name}) is of {self._at}"
            self._report(HistoryRule.UPDATED_AT, detail)
        failures, crashes = row.failures - self._failures, row.crashes - self._crashes
        fits = failures >= 0 and crashes >= 0 and failures + crashes == self._undecided
        if self._counters_known and not fits:
            counted = f"{self._failures} failures and {self._crashes} crashes"
            if self._undecided:
                counted += f" and {self._undecided} that may be either"
            detail = f"the row has {row.failures} failures and {row.crashes} crashes, the log {counted}"
            self._report(HistoryRule.COUNTERS, detail)

    def _check_columns(self, row: RowFacts) -> None:
        if row.state == _RUNNING:
            if row.lease_token is None or not row.has_expiry:
                missing = "lease_token" if row.lease_token is None else "lease_expires_at"
                self._report(HistoryRule.RUNNING_WITHOUT_LEASE, f"the job is running, {missing} is null")
        elif row.lease_token is not None or row.has_expiry or row.lease_owner is not None:
            self._report(HistoryRule.LEASE_WITHOUT_RUNNING, f"the job is {row.state} and still names a lease")
        if row.is_finished != (row.state in _TERMINAL):
            finished = "set" if row.is_finished else "null"
            self._report(HistoryRule.FINISHED_AT, f"the job is {row.state}, finished_at is {finished}")


def _charge_of_failed(detail: str | None) -> Charge:
    try:
        content = json.loads(detail) if detail is not None else None
    except (ValueError, RecursionError):  # not ours to judge here: the log keeps whatever an operator wrote
        content = None
    reason = content.get("reason") if isinstance(content, dict) else None
    if reason == WORKER_LOST:
        return Charge.CRASH
    return Charge.FAILURE if reason in _FAILURE_REASONS else Charge.FAILURE_OR_CRASH
