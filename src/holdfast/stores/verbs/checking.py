"""Reports whose every part can be stored: checked before anything is."""

from __future__ import annotations

from dataclasses import field
from typing import Any, assert_never

from holdfast.domain import digests, durations
from holdfast.domain.answers import Verb
from holdfast.domain.artifacts import INLINE_RESULT_BYTES, Artifact, check_artifact
from holdfast.domain.errors import TooLarge
from holdfast.domain.hot import hot_value
from holdfast.domain.looks import Looks, readable_looks
from holdfast.domain.names import MAX_NAME, check_id, check_integer, storable_text
from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    JobError,
    Outcome,
    Released,
    Report,
    Snoozed,
    Succeeded,
)
from holdfast.domain.spec import encode_json
from holdfast.stores.verbs.beating import storable_progress

MAX_ERROR_TEXT = 16 * 1024
_NO_LOOKS: Looks = {}


@hot_value(frozen=True, slots=True)
class Checked:
    """A report whose every part can be stored."""

    job_id: str
    attempt: int
    digest: str
    report_digest: str
    outcome: Outcome
    worker: str | None
    usage: dict[str, int]
    result: str | None
    artifacts: tuple[Artifact, ...] = ()
    progress: Any = None
    cache: Looks = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """A success that leaves nothing behind but its result."""
        outcome = self.outcome
        return (
            type(outcome) is Succeeded
            and outcome.result_ref is None
            and not self.artifacts
            and self.progress is None
            and not self.cache
        )

    @property
    def verb(self) -> Verb:
        if isinstance(self.outcome, Succeeded):
            return Verb.COMPLETE
        return Verb.RELEASE if isinstance(self.outcome, Released | Snoozed) else Verb.FAIL


def check(report: Report) -> Checked:
    job_id = check_id(report.job_id, "job_id")
    outcome = report.outcome if type(report.outcome) is Succeeded else _storable(report.outcome)
    digest = digests.report_digest(outcome, f"result of job {job_id}")
    attempt = check_integer(report.attempt, "attempt", 0, 2**31 - 1)
    return Checked(
        job_id,
        attempt,
        digests.token_digest(report.lease_token, report.credential),
        digest,
        outcome,
        None if report.worker is None else storable_text(report.worker, MAX_NAME),
        {name: _figure(value, name) for name, value in report.usage.to_json().items()},
        _result(outcome, job_id),
        tuple(check_artifact(artifact, job_id, attempt) for artifact in report.artifacts) if report.artifacts else (),
        None if report.progress is None else storable_progress(report.progress),
        readable_looks(report.cache) if report.cache else _NO_LOOKS,
    )


def _result(outcome: Outcome, job_id: str) -> str | None:
    if not isinstance(outcome, Succeeded) or outcome.result is None:
        return None
    result = encode_json(outcome.result)
    if len(result.encode()) > INLINE_RESULT_BYTES:
        rule = f"of job {job_id} is over the limit of {INLINE_RESULT_BYTES:,} bytes of JSON; store it elsewhere"
        raise TooLarge("result", rule, INLINE_RESULT_BYTES)
    return result


def _storable(outcome: Outcome) -> Outcome:
    """Text comes from user code and must never keep an outcome from being recorded: it is made to fit instead."""
    match outcome:
        case Failed(error=error, exit_code=exit_code, told=told):
            stack = None if error.stack is None else _text(error.stack)
            error = JobError(_text(error.code), _text(error.message), stack, bool(error.retryable))
            return Failed(error, _optional_figure(exit_code, "exit_code"), bool(told))
        case Crashed(message=message, exit_code=exit_code, signal=signal):
            return Crashed(_text(message), _optional_figure(exit_code, "exit_code"), _optional_figure(signal, "signal"))
        case Released(reason=reason):
            return Released(_text(reason))
        case Snoozed(delay_seconds=delay, reason=reason, throttled=throttled):
            return Snoozed(durations.seconds(delay, "delay_seconds"), _text(reason), bool(throttled))
        case Cancelled(reason=reason):
            return Cancelled(_text(reason))
        case Succeeded():
            return outcome
        case _ as never:
            assert_never(never)


def _text(value: str) -> str:
    return storable_text(value, MAX_ERROR_TEXT)


def _optional_figure(value: int | None, field: str) -> int | None:
    return None if value is None else _figure(value, field)


def _figure(value: int, field: str) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    return check_integer(value, field, -(2**63), 2**63 - 1)
