"""What `holdfast verify` checks, under its own names."""

from __future__ import annotations

from holdfast.domain.history import HistoryChecker, HistoryRule, Reference, judge_reference
from holdfast.domain.lifecycle import TERMINAL, Event
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import RUNNING, Life, is_outcome

_BY_EVENT = (
    HistoryRule.GAP,
    HistoryRule.UNKNOWN_EVENT,
    HistoryRule.ILLEGAL_TRANSITION,
    HistoryRule.BROKEN_CHAIN,
    HistoryRule.TIME_ORDER,
)
_BY_CLAIM = (HistoryRule.LEASE_OVERLAP, HistoryRule.CLAIM_WITHOUT_LEASE, HistoryRule.ATTEMPT_NOT_GROWING)
_BY_ROW = (HistoryRule.NO_HISTORY, HistoryRule.FOLD, HistoryRule.COUNTERS, HistoryRule.UPDATED_AT)


def check_history(life: Life, found: Findings) -> bool:
    """Whether it is in order. Where it is not, the log is no witness, and nothing else is held against it."""
    checker = HistoryChecker(life.job_id)
    for event in life.events:
        checker.feed(event)
    violations = checker.finish(life.row)
    for violation in violations:
        found.add(violation.rule, violation.detail, life.job_id, length=len(life.events))
    _count(life, found)
    return not violations


def _count(life: Life, found: Findings) -> None:
    _held(found, _BY_EVENT, len(life.events))
    _held(found, _BY_CLAIM, sum(event.event == Event.CLAIMED for event in life.events))
    found.held(HistoryRule.WRONG_LEASE, sum(event.from_state == RUNNING for event in life.events))
    found.held(HistoryRule.TWO_OUTCOMES, sum(is_outcome(event) for event in life.events))
    found.held(HistoryRule.AFTER_PRUNED, sum(event.event == Event.PRUNED for event in life.events))
    found.held(HistoryRule.NO_ROW, int(bool(life.events)))
    if life.row is None:
        return
    _held(found, _BY_ROW, 1)
    found.held(HistoryRule.FINISHED_AT, int(life.row.state in TERMINAL))
    is_running = life.row.state == RUNNING
    found.held(HistoryRule.RUNNING_WITHOUT_LEASE if is_running else HistoryRule.LEASE_WITHOUT_RUNNING)


def _held(found: Findings, rules: tuple[HistoryRule, ...], things: int) -> None:
    for rule in rules:
        found.held(rule, things)


def check_reference(reference: Reference, retired_through: str | None, found: Findings) -> None:
    violation = judge_reference(reference, retired_through)
    if violation is not None:
        found.add(violation.rule, violation.detail, violation.job_id)
