"""The attempts that a stretch of a job's history tells of, as the view `holdfast_attempts` says it of all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.domain.job import Attempt, AuditEvent
from holdfast.domain.lifecycle import Event, State


def attempts_in(events: Iterable[AuditEvent]) -> list[Attempt]:
    """In order. One whose claim is not among the events is left out."""
    found: dict[int, Attempt] = {}
    for event in events:
        begun = found.get(event.attempt)
        if event.event == Event.CLAIMED:
            found[event.attempt] = _begun(event)
        elif begun is not None and begun.finished_at is None and event.from_state == State.RUNNING != event.to_state:
            found[event.attempt] = _ended(begun, event)
    return list(found.values())


def _begun(event: AuditEvent) -> Attempt:
    nothing: dict[str, Any] = dict.fromkeys(("finished_at", "outcome", "error", "exit_code", "signal"))
    figures: dict[str, Any] = dict.fromkeys(("duration_ms", "cpu_ms", "max_rss_kb"))
    return Attempt(event.job_id, event.attempt, event.worker, event.at, **nothing, **figures)


def _ended(begun: Attempt, event: AuditEvent) -> Attempt:
    detail = event.detail or {}
    lasted = round((event.at - begun.started_at).total_seconds() * 1000)
    error = detail.get("error")
    return replace(
        begun,
        finished_at=event.at,
        outcome=event.event,
        error=error if isinstance(error, dict) else None,
        exit_code=_whole(detail.get("exit_code")),
        signal=_whole(detail.get("signal")),
        duration_ms=_whole(detail.get("duration_ms"), lasted),
        cpu_ms=_whole(detail.get("cpu_ms")),
        max_rss_kb=_whole(detail.get("max_rss_kb")),
    )


def _whole(value: Any, otherwise: int | None = None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
