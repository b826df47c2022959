"""What was charged to a job, and whether it came to an end: by what the run knows of its task."""

from __future__ import annotations

from holdfast.domain.lifecycle import TERMINAL, Event, State
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life, error_code, is_worker_lost
from holdfast.torture.checker.rules import Rule
from holdfast.torture.evidence import Told

INVALID_ARGUMENTS = "invalid_arguments"


def check_charges(life: Life, told: Told, expected: Expectations, found: Findings) -> None:
    if life.task in expected.calm:
        found.held(Rule.WRONGLY_CHARGED)
        _add(found, Rule.WRONGLY_CHARGED, _failure(life), life)
    if life.task in expected.undecodable and life.state in TERMINAL and life.state != State.CANCELLED:
        found.held(Rule.UNDECODABLE)
        _add(found, Rule.UNDECODABLE, _decoded(life, told), life)
    max_crashes = expected.poison.get(life.task or "")
    if max_crashes is not None and life.state in TERMINAL and life.state != State.CANCELLED:
        found.held(Rule.POISON)
        _add(found, Rule.POISON, _survival(life, max_crashes), life)


def check_ended(life: Life, expected: Expectations, found: Findings) -> None:
    """A receiver of webhooks may be away for hours, and nobody waits for it."""
    if not expected.drained or life.task == DELIVERY_TASK:
        return
    found.held(Rule.NOT_ENDED)
    if life.row is not None and life.row.state not in TERMINAL:
        _add(found, Rule.NOT_ENDED, f"it is {life.row.state} after everything else had ended", life)


def _add(found: Findings, rule: Rule, fault: str | None, life: Life) -> None:
    if fault is not None:
        found.add(rule, fault, life.job_id, length=len(life.events))


def _failure(life: Life) -> str | None:
    for event in life.events:
        is_charged = event.event == Event.FAILED and not is_worker_lost(event)
        if is_charged or event.event == Event.RETRY_SCHEDULED:
            return f"{life.task} never fails, and {event.event} (seq {event.seq}) charges attempt {event.attempt}"
    if life.row is not None and life.row.failures:
        return f"{life.task} never fails, and its row counts {life.row.failures} of them"
    return None


def _decoded(life: Life, told: Told) -> str | None:
    if told.began:
        return f"its payload cannot be decoded, and its code began as attempt {told.began[0]}"
    if life.state != State.FAILED:
        return f"its payload cannot be decoded, and the job {life.state}"
    ends = [event for event in life.events if event.event == Event.FAILED]
    code = error_code(ends[-1]) if ends else None
    if code != INVALID_ARGUMENTS:
        return f"its payload cannot be decoded, and the job failed with {code}, not with {INVALID_ARGUMENTS}"
    return None


def _survival(life: Life, max_crashes: int) -> str | None:
    if life.state != State.FAILED:
        return f"{life.task} kills its worker, and the job {life.state}"
    ends = [event for event in life.events if event.event == Event.FAILED]
    if not ends or not is_worker_lost(ends[-1]):
        return f"{life.task} kills its worker, and the job failed for another reason than worker_lost"
    if life.row is not None and life.row.crashes != max_crashes:
        return f"{life.task} kills its worker {max_crashes} times, and the job was given up after {life.row.crashes}"
    return None
