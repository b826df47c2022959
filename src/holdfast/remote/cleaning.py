"""What a worker sends, made to fit before it leaves: no store holds half a character, and neither does JSON.

Words that a job said are never a reason to lose its outcome: what cannot be sent of them is replaced. Values are left
alone; one that JSON cannot hold is named in the error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from holdfast.domain import spec
from holdfast.domain.answers import Beat
from holdfast.domain.digests import report_digest
from holdfast.domain.errors import InvalidInput
from holdfast.domain.logs import LogLine
from holdfast.domain.names import MAX_NAME, check_id, storable_text
from holdfast.domain.outcome import Crashed, Failed, Outcome, Report, Snoozed, Succeeded

LONGEST_CODE = 1_000
LONGEST_TEXT = 64 * 1024  # the store keeps less of it
NOBODY = "remote"  # the label of whoever does not say who it is


def label(worker: str | None) -> str:
    """As a name: it decides nothing, so nothing may fail for it."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in storable_text(worker or "", MAX_NAME))[:MAX_NAME]
    return text if text.strip() else NOBODY


def clean_report(report: Report) -> Report:
    check_id(report.job_id, "job_id")
    if report.progress is not None:
        spec.canonical_json(report.progress, "progress")
    return replace(report, outcome=_clean_outcome(report.outcome, report.job_id))


def clean_beat(beat: Beat) -> Beat:
    check_id(beat.job_id, "job_id")
    if beat.progress is not None:
        spec.canonical_json(beat.progress, "progress")
    return beat


def clean_line(line: LogLine) -> LogLine:
    fields = {storable_text(str(name), MAX_NAME): _sendable(value) for name, value in line.fields.items()}
    level = None if line.level is None else storable_text(line.level, MAX_NAME)
    return replace(line, message=storable_text(line.message, LONGEST_TEXT), level=level, fields=fields)


def _clean_outcome(outcome: Outcome, job_id: str) -> Outcome:
    match outcome:
        case Succeeded():
            report_digest(outcome, f"result of job {job_id}")  # says what is wrong with it, if anything is
            return outcome
        case Failed(error=error):
            stack = None if error.stack is None else storable_text(error.stack, LONGEST_TEXT)
            said = storable_text(error.message, LONGEST_TEXT)
            clean = replace(error, code=storable_text(error.code, LONGEST_CODE), message=said, stack=stack)
            return replace(outcome, error=clean)
        case Crashed(message=message):
            return replace(outcome, message=storable_text(message, LONGEST_TEXT))
        case Snoozed(delay_seconds=delay) if not _is_number(delay):
            raise InvalidInput("delay", f"must be a number of seconds, got {delay!r}")
        case _:
            return replace(outcome, reason=storable_text(outcome.reason, LONGEST_TEXT))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _sendable(value: Any) -> Any:
    try:
        spec.canonical_json(value, "fields")
    except InvalidInput:
        return storable_text(repr(value), LONGEST_TEXT)
    return value
