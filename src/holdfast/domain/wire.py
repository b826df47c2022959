"""What a worker and its store say to each other, as JSON: over HTTP, and outcomes also between a runner and its
supervisor. Both ends of a line use these, so that a name is spelled once.

A claim that waited says so (`waited_ms`: from the arrival of the request to the beginning of the transaction that
claimed). The worker counts its leases from the moment it asked, plus that; without it a lease shorter than a long poll
would be over before its job began.

What is read ignores names that it does not know: the other end may be newer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

from holdfast.domain.answers import Beat, Beaten, Reason, Settled, Status
from holdfast.domain.artifacts import Artifact
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import DEFAULT_HEARTBEAT_SECONDS, Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.looks import readable_looks
from holdfast.domain.names import check_id
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
    Usage,
)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Succeeded(result=result, result_ref=result_ref):
            return {"kind": "succeeded", "result": result, "result_ref": result_ref}
        case Failed(error=error, exit_code=exit_code, told=told):
            failed = {"kind": "failed", "error": error.to_json(), "exit_code": exit_code}
            return {**failed, "told": True} if told else failed
        case Crashed(message=message, exit_code=exit_code, signal=signal):
            return {"kind": "crashed", "message": message, "exit_code": exit_code, "signal": signal}
        case Released(reason=reason):
            return {"kind": "released", "reason": reason}
        case Snoozed(delay_seconds=delay, reason=reason, throttled=throttled):
            said = {"kind": "snoozed", "delay_seconds": delay, "reason": reason}
            return {**said, "throttled": True} if throttled else said
        case Cancelled(reason=reason):
            return {"kind": "cancelled", "reason": reason}
        case _ as never:
            assert_never(never)


def outcome_from_json(value: dict[str, Any]) -> Outcome:
    match value["kind"]:
        case "succeeded":
            return Succeeded(value["result"], value["result_ref"])
        case "failed":
            error = value["error"]
            known = JobError(error["code"], error["message"], error["stack"], error["retryable"])
            return Failed(known, value["exit_code"], bool(value.get("told")))
        case "crashed":
            return Crashed(value["message"], value["exit_code"], value["signal"])
        case "released":
            return Released(value["reason"])
        case "snoozed":
            return Snoozed(value["delay_seconds"], value["reason"], bool(value.get("throttled")))
        case "cancelled":
            return Cancelled(value["reason"])
        case other:
            raise ValueError(f"no outcome is called {other!r}")


def usage_from_json(value: dict[str, int]) -> Usage:
    return Usage(value.get("duration_ms"), value.get("cpu_ms"), value.get("max_rss_kb"))


def attempt_id(job_id: str, attempt: int) -> str:
    return f"{job_id}.{attempt}"


def parse_attempt_id(value: Any, field: str = "attempt_id") -> tuple[str, int]:
    """Job id and attempt number of `"<job id>.<attempt>"`."""
    job_id, dot, number = value.rpartition(".") if isinstance(value, str) else ("", "", "")
    if not dot or not number.isascii() or not number.isdecimal() or len(number) > 10 or str(int(number)) != number:
        raise InvalidInput(field, f"must be <job id>.<attempt>, got {str(value)[:80]!r}")
    return check_id(job_id, field), int(number)


# claims


def claimed_to_json(job: Claimed, heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS) -> dict[str, Any]:
    """First the fields that the contract fixes; then what a worker of ours also wants to know."""
    return {
        "job_id": job.job_id,
        "attempt_id": job.attempt_id,
        "lease_token": job.lease_token,
        "stream": job.queue,
        "message_id": job.message_id,
        "task": job.task,
        "payload": job.payload,
        "attempt": job.attempt,
        "timeout_seconds": job.timeout_seconds,
        "traceparent": job.traceparent,
        "lease_ttl_seconds": job.lease_seconds,
        "heartbeat_interval_seconds": min(heartbeat_seconds, job.lease_seconds / 3),
        "version": job.task_version,
        "queue": job.queue,
        "source": job.source,
        "failures": job.failures,
        "crashes": job.crashes,
        "max_attempts": job.max_attempts,
        "max_crashes": job.max_crashes,
        "due_seconds": job.due_seconds,
    }


def claimed_from_json(value: Mapping[str, Any]) -> Claimed:
    return Claimed(
        job_id=value["job_id"],
        task=value["task"],
        task_version=value["version"],
        queue=value["queue"],
        source=value["source"],
        payload_json=json.dumps(value["payload"]),
        attempt=value["attempt"],
        failures=value["failures"],
        crashes=value["crashes"],
        max_attempts=value["max_attempts"],
        max_crashes=value["max_crashes"],
        timeout_seconds=value["timeout_seconds"],
        lease_seconds=value["lease_ttl_seconds"],
        traceparent=value["traceparent"],
        lease_token=value["lease_token"],
        message_id=value["message_id"],
        due_seconds=value.get("due_seconds"),
    )


def claims_to_json(found: list[dict[str, Any]], waited_seconds: float = 0.0) -> dict[str, Any]:
    """The answer to a claim with a `limit`: at the top level stand the fields of the first job, if there is one."""
    first = found[0] if found else {}
    return {"claimed": bool(found), **first, "jobs": found, "waited_ms": int(waited_seconds * 1000)}


# heartbeats


def beat_to_json(beat: Beat) -> dict[str, Any]:
    value = {
        "job_id": beat.job_id,
        "attempt_id": attempt_id(beat.job_id, beat.attempt),
        "lease_token": beat.lease_token,
    }
    return value if beat.progress is None else {**value, "progress": beat.progress}


def beaten_to_json(beaten: Beaten) -> dict[str, Any]:
    expires_at = beaten.lease_expires_at
    return {
        "ok": beaten.status is Status.APPLIED,
        "status": str(beaten.status),
        "reason": None if beaten.reason is None else str(beaten.reason),
        "lease_expires_at": None if expires_at is None else expires_at.isoformat(),
        "lease_ttl_seconds": beaten.lease_seconds,
        "cancel": beaten.cancel,
    }


def beaten_from_json(job_id: str, value: Mapping[str, Any]) -> Beaten:
    expires_at = value["lease_expires_at"]
    return Beaten(
        job_id,
        Status(value["status"]),
        None if expires_at is None else datetime.fromisoformat(expires_at),
        value["lease_ttl_seconds"],
        value["cancel"],
        _reason(value["reason"]),
    )


# reports


def report_to_json(report: Report) -> dict[str, Any]:
    value = {
        "job_id": report.job_id,
        "attempt_id": attempt_id(report.job_id, report.attempt),
        "lease_token": report.lease_token,
        "message_id": report.message_id,
        "outcome": outcome_to_json(report.outcome),
        "usage": report.usage.to_json(),
        "progress": report.progress,
        "artifacts": [artifact.to_json() for artifact in report.artifacts],
        "cache": {source: list(looks) for source, looks in report.cache.items()},
    }
    return {name: part for name, part in value.items() if part not in (None, {}, []) or name == "outcome"}


def report_from_json(value: Mapping[str, Any], worker: str, credential: str) -> Report:
    job_id, attempt = value["job_id"], parse_attempt_id(value["attempt_id"])[1]
    artifacts = value.get("artifacts") or ()
    return Report(
        job_id,
        attempt,
        value["lease_token"],
        outcome_from_json(value["outcome"]),
        worker,
        usage_from_json(value.get("usage") or {}),
        value.get("progress"),
        tuple(Artifact.from_json(job_id, attempt, artifact) for artifact in artifacts),
        credential=credential,
        message_id=value.get("message_id"),
        cache=readable_looks(value.get("cache")),
    )


def settled_to_json(settled: Settled) -> dict[str, Any]:
    """`ack`: there is nothing more to report about this attempt. Not so for a lease that never was."""
    over = settled.reason in (Reason.LEASE_LOST, Reason.CONFLICTING_REPORT)
    return {
        "ok": settled.ok,
        "ack": settled.ok or over,
        "status": str(settled.status),
        "event": settled.event,
        "state": None if settled.state is None else str(settled.state),
        "reason": None if settled.reason is None else str(settled.reason),
    }


def settled_from_json(job_id: str, attempt: int, value: Mapping[str, Any]) -> Settled:
    state = value["state"]
    return Settled(
        job_id,
        attempt,
        Status(value["status"]),
        value["event"],
        None if state is None else State(state),
        _reason(value["reason"]),
    )


def _reason(value: str | None) -> Reason | None:
    return None if value is None else Reason(value)
