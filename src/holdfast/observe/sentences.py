"""Every sentence a worker writes into its log: one event, one level, one text, its fields. Pure."""

from __future__ import annotations

import signal
from typing import Any, Literal, NamedTuple, assert_never

from holdfast.domain.answers import Status
from holdfast.domain.events import (
    Beats,
    Claims,
    ClockSetBack,
    DutyRefused,
    Event,
    JobReaped,
    LeaseGone,
    Problem,
    Reaping,
    RunEnded,
    RunMoved,
    RunnerEnded,
    RunnerStarted,
    RunSucceeded,
    ScheduleFailed,
    StartOverdue,
    StoreBack,
    StoreFailed,
    Ticked,
    UpkeepDone,
    UpkeepFailed,
    UpkeepStep,
    WakeUps,
    WorkerMoved,
)
from holdfast.domain.lifecycle import Event as Recorded
from holdfast.domain.schedule import Outcome as Tick
from holdfast.domain.worker_states import ERROR_WAIT_SECONDS, WorkerState

Level = Literal["debug", "info", "warning", "error"]

# Events of the hot path that are never worth more than a debug line.
ALWAYS_DEBUG = frozenset({RunMoved, RunSucceeded, Claims, Beats, UpkeepStep})


class Sentence(NamedTuple):
    level: Level
    text: str
    fields: dict[str, Any]


def sentence(event: Event) -> Sentence:
    match event:
        case RunMoved():
            return _run_moved(event)
        case RunEnded():
            return _run_ended(event)
        case Claims(count, seconds):
            text = "jobs claimed" if count else "nothing to claim"
            return Sentence("debug", text, {"count": count, "seconds": round(seconds, 6)})
        case Beats(count, seconds, margin):
            figures = {"count": count, "seconds": round(seconds, 6), "margin": round(margin, 3)}
            return Sentence("debug", "leases renewed", figures)
        case WorkerMoved():
            return _worker_moved(event)
        case LeaseGone():
            return _lease_gone(event)
        case RunnerStarted(pid, kind, slots):
            return Sentence("info", "runner started", {"pid": pid, "kind": kind, "slots": slots})
        case RunnerEnded():
            return _runner_ended(event)
        case StartOverdue():
            fields = _job(event) | {"pid": event.pid, "waited_seconds": round(event.seconds), "killed": event.killed}
            if event.killed:
                return Sentence("error", "runner had stopped and is killed: it did not start a job", fields)
            return Sentence("warning", "runner does not start a job: another one blocks it", fields)
        case StoreFailed(what, message):
            return Sentence("warning", "store failed", {"what": what, "error": message})
        case StoreBack(what, seconds):
            return Sentence("info", "store is back", {"what": what, "away_seconds": round(seconds, 3)})
        case Reaping(count):
            return Sentence("info" if count else "debug", "expired leases reaped", {"count": count})
        case ClockSetBack(seconds, leases, jobs, sources):
            behind = {} if seconds is None else {"behind_seconds": round(seconds, 3)}
            corrected = {"leases": leases, "jobs": jobs, "sources": sources}
            return Sentence("warning", "the store's clock was set back; times corrected", behind | corrected)
        case Ticked():
            return _ticked(event)
        case ScheduleFailed(schedule, message):
            return Sentence("error", "schedule cannot fire", {"schedule": schedule, "error": message})
        case WakeUps(status):
            level: Level = "warning" if status == "degraded" else "info"
            return Sentence(level, f"wake-ups are {status}", {"status": status})
        case UpkeepStep(chore, count, seconds):
            return Sentence("debug", "upkeep batch", {"chore": chore, "count": count, "seconds": round(seconds, 6)})
        case UpkeepDone(chore, count, seconds, finished):
            text = "upkeep done" if finished else "upkeep stopped before it was done"
            return Sentence("info", text, {"chore": chore, "count": count, "seconds": round(seconds, 3)})
        case UpkeepFailed(chore, message, stack, retry_seconds):
            fields = {"chore": chore, "error": message, "stack": stack, "retry_seconds": round(retry_seconds, 1)}
            return Sentence("error", "upkeep failed", fields)
        case DutyRefused(duty, message):
            return Sentence("warning", "not allowed, and left out", {"duty": duty, "error": message})
        case JobReaped(job_id, attempt, recorded):
            fields = {"job_id": job_id, "attempt": attempt, "recorded": recorded}
            return Sentence("info", "job taken back from a worker that is gone", fields)
        case Problem():
            told: dict[str, Any] = {"where": event.where, "error": event.message, "stack": event.stack}
            told |= {"job_id": event.job_id, "attempt": event.attempt}
            known = {name: value for name, value in told.items() if value is not None}
            return Sentence("error", "unexpected problem survived", known)
        case _:
            assert_never(event)


def _worker_moved(event: WorkerMoved) -> Sentence:
    fields: dict[str, Any] = {"before": str(event.before), "after": str(event.after)}
    match event.after:
        case WorkerState.ERROR_WAIT:
            return Sentence("warning", "worker waits after an error", fields | {"wait_seconds": ERROR_WAIT_SECONDS})
        case WorkerState.DRAINING:
            return Sentence("info", "worker is draining", fields)
        case WorkerState.STOPPED:
            return Sentence("info", "worker stopped", fields)
        case _:
            return Sentence("debug", "worker moved", fields)


def _run_moved(event: RunMoved) -> Sentence:
    fields = _job(event) | {"queue": event.queue, "before": _word(event.before), "after": _word(event.after)}
    return Sentence("debug", "run moved", fields)


# What the store recorded for the attempt, in words. Success and an orderly "later" are routine.
_ENDINGS: dict[str, tuple[Level, str]] = {
    Recorded.SUCCEEDED: ("debug", "job succeeded"),
    Recorded.SNOOZED: ("debug", "job snoozed"),
    Recorded.RETRY_SCHEDULED: ("info", "job failed and will be tried again"),
    Recorded.FAILED: ("info", "job failed for good"),
    Recorded.CRASHED: ("info", "job lost its runner and will be tried again"),
    Recorded.RELEASED: ("info", "job given back without charge"),
    Recorded.CANCELLED: ("info", "job cancelled"),
}


def _run_ended(event: RunEnded) -> Sentence:
    fields = _job(event) | {"queue": event.queue, "outcome": event.outcome, "duration_ms": event.duration_ms}
    if event.error is not None:
        fields["error"] = event.error
    if event.status == Status.REFUSED:
        return Sentence("warning", "report refused", fields)
    if event.status == Status.BUSY:
        return Sentence("debug", "report put off, the row is locked", fields)
    level, text = _ENDINGS.get(event.event or "", ("info", "job ended"))
    return Sentence(level, text, fields | {"recorded": event.event, "status": str(event.status)})


def _lease_gone(event: LeaseGone) -> Sentence:
    text = "lease is not ours any more" if event.refused else "lease cannot be confirmed any more"
    return Sentence("warning", text, _job(event) | {"run_killed": event.killed})


def _runner_ended(event: RunnerEnded) -> Sentence:
    fields: dict[str, Any] = {"pid": event.pid, "kind": event.kind, "jobs": event.jobs, "exit_code": event.exit_code}
    if event.signal is not None:
        fields["signal"] = _signal_name(event.signal)
    if event.why is not None:
        return Sentence("info", "runner ended", fields | {"why": event.why})
    if event.signal is not None:
        return Sentence("error", "runner was killed", fields)
    return Sentence("error" if event.exit_code else "warning", "runner ended by itself", fields)


def _ticked(event: Ticked) -> Sentence:
    fields = {"schedule": event.schedule, "job_id": event.job_id, "late_seconds": round(event.late, 3)}
    match event.outcome:
        case Tick.SKIPPED:
            return Sentence("warning", "schedule left out what it missed", fields)
        case Tick.EXISTING:
            return Sentence("info", "schedule found its job still active", fields)
        case _:
            return Sentence("info", "schedule fired", fields)


def _job(event: RunMoved | RunEnded | LeaseGone | StartOverdue) -> dict[str, Any]:
    return {"job_id": event.job_id, "attempt": event.attempt, "task": event.task}


def _word(state: object) -> str | None:
    return None if state is None else str(state)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has a number only
        return str(number)
