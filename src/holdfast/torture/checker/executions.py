"""What ran, as it was noted by whatever ran it, held against one job's history.

A note of a beginning is written before anything else and one of the end after everything else, so whoever is killed
leaves the first without the second, and a success cannot be without both. Workers that speak the contract note their
claims instead; external commands note nothing.
"""

from __future__ import annotations

from collections import Counter

from holdfast.domain.history import EventFacts
from holdfast.domain.lifecycle import Event
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.torture.checker.doors import CONTRACT, door_of
from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life, is_worker_lost
from holdfast.torture.checker.rules import Rule
from holdfast.torture.evidence import Told


def check_executions(life: Life, told: Told, found: Findings) -> None:
    claimed = {event.attempt for event in life.claims}
    for attempt, times in Counter(told.began).items():
        found.held(Rule.UNKNOWN_EXECUTION)
        found.held(Rule.ATTEMPT_TWICE)
        if attempt not in claimed:
            fault = f"its code began as attempt {attempt}; the log has no claim of that attempt"
            found.add(Rule.UNKNOWN_EXECUTION, fault, life.job_id, length=len(life.events))
        if times > 1:
            fault = f"its code began {times} times as attempt {attempt}"
            found.add(Rule.ATTEMPT_TWICE, fault, life.job_id, length=len(life.events))


def check_success(life: Life, told: Told, expected: Expectations, found: Findings) -> None:
    if life.task in expected.unnoted or life.task == DELIVERY_TASK:
        return
    for event in life.events:
        if event.event == Event.SUCCEEDED:
            found.held(Rule.SUCCESS_WITHOUT_EXECUTION)
            missing = _missing(event, told, ends=life.task not in expected.settled_inside)
            if missing is not None:
                fault = f"it succeeded as attempt {event.attempt} ({event.worker}); {missing}"
                found.add(Rule.SUCCESS_WITHOUT_EXECUTION, fault, life.job_id, length=len(life.events))


def check_replaced(life: Life, told: Told, found: Findings) -> None:
    """A runner may die between the last line of the code and its report, which is a crash and no failure."""
    for event in life.events:
        if event.attempt not in told.ended or event.event not in (Event.FAILED, Event.RETRY_SCHEDULED, Event.SUCCEEDED):
            continue
        found.held(Rule.OUTCOME_REPLACED)
        if event.event != Event.SUCCEEDED and not is_worker_lost(event):
            fault = f"its code ran to its end as attempt {event.attempt}; the log says {event.event} (seq {event.seq})"
            found.add(Rule.OUTCOME_REPLACED, fault, life.job_id, length=len(life.events))


def _missing(success: EventFacts, told: Told, *, ends: bool) -> str | None:
    if door_of(success.worker) == CONTRACT:
        was_given = any(claim.attempt == success.attempt for claim in told.claims)
        return None if was_given else "nobody noted that he was given it"
    if success.attempt not in told.began:
        return "nobody noted that its code began"
    return "its code did not come to its last line" if ends and success.attempt not in told.ended else None
