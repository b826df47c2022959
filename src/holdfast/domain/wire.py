"""Outcomes as JSON, for the pipe between a runner and its supervisor and for HTTP."""

from __future__ import annotations

from typing import Any, assert_never

from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    JobError,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Usage,
)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Succeeded(result=result, result_ref=result_ref):
            return {"kind": "succeeded", "result": result, "result_ref": result_ref}
        case Failed(error=error, exit_code=exit_code):
            return {"kind": "failed", "error": error.to_json(), "exit_code": exit_code}
        case Crashed(message=message, exit_code=exit_code, signal=signal):
            return {"kind": "crashed", "message": message, "exit_code": exit_code, "signal": signal}
        case Released(reason=reason):
            return {"kind": "released", "reason": reason}
        case Snoozed(delay_seconds=delay, reason=reason):
            return {"kind": "snoozed", "delay_seconds": delay, "reason": reason}
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
            return Failed(known, value["exit_code"])
        case "crashed":
            return Crashed(value["message"], value["exit_code"], value["signal"])
        case "released":
            return Released(value["reason"])
        case "snoozed":
            return Snoozed(value["delay_seconds"], value["reason"])
        case "cancelled":
            return Cancelled(value["reason"])
        case other:
            raise ValueError(f"no outcome is called {other!r}")


def usage_from_json(value: dict[str, int]) -> Usage:
    return Usage(value.get("duration_ms"), value.get("cpu_ms"), value.get("max_rss_kb"))
