"""`holdfast jobs show ID`"""

from __future__ import annotations

import json as json_text
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age, span
from holdfast.cli.jobs_artifacts import described, print_artifacts
from holdfast.cli.progress import progress_bar
from holdfast.cli.session import Json, begin, opened, store_time
from holdfast.cli.timeline import print_timeline
from holdfast.domain.job import Attempt, AuditEvent, Job
from holdfast.domain.views import Refusal
from holdfast.tasks.comparing import root_of


def show(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    json: Json = False,
) -> None:
    """One job with its timeline, its history, its attempts, and what was refused in its name."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        job = store.job(job_id)
        events = store.events(job_id)
        attempts = store.attempts(job_id)
        refusals = store.refusals(job_id)
        saved = store.artifacts(job_id)
        log_lines = store.count_logs(job_id)
        replays = store.replays(job_id)
        root = root_of(store, job)
        now = store_time(store)
    if session.json:
        columns = {item.name: getattr(job, item.name) for item in fields(Job)}
        lists = {"events": events, "attempts": attempts, "refusals": refusals}
        lists |= {"root": root, "replays": [_replay(replay) for replay in replays]}
        output.document({**columns, **lists, "log_lines": log_lines, "artifacts": [described(a) for a in saved]})
        return
    output.facts(_facts(job, root, now))
    output.line("")
    print_timeline(events, attempts, refusals, now)
    if log_lines:
        output.line(f"\nlog lines: {log_lines:,} (holdfast jobs logs {job.id})", "dim")
    _print_events(events, now)
    _print_attempts(attempts, now)
    _print_refusals(refusals, now)
    _print_replays(replays, now)
    if saved:
        output.line("\nartifacts", "bold")
        print_artifacts(saved, now)


def _facts(job: Job, root: str | None, now: datetime) -> list[tuple[str, object]]:
    return [
        ("id", job.id),
        ("task", f"{job.task} (version {job.task_version})" if job.task_version else job.task),
        ("queue", job.queue),
        ("source", job.source),
        ("state", job.state),
        ("priority", job.priority or None),
        ("payload", _compact(job.payload)),
        ("progress", progress_bar(job.progress)),
        ("result", _compact(job.result)),
        ("result ref", job.result_ref),
        ("last error", _error(job.last_error)),
        ("attempt", job.attempt),
        ("budget", f"{job.failures} failures and {job.crashes} crashes of {job.max_attempts}"),
        ("unique key", job.unique_key),
        ("spec hash", job.spec_hash),
        ("replay of", job.replay_of),
        ("first of all", root if root != job.replay_of else None),
        ("held by", job.lease_owner),
        ("lease ends", age(job.lease_expires_at, now)),
        ("heartbeat", age(job.heartbeat_at, now) if job.lease_owner else None),
        ("cancel asked", age(job.cancel_requested_at, now)),
        ("due", age(job.run_after, now) if job.run_after > now else None),
        ("created", age(job.created_at, now)),
        ("started", age(job.started_at, now)),
        ("finished", age(job.finished_at, now)),
    ]


def _print_events(events: list[AuditEvent], now: datetime) -> None:
    output.line("\nevents", "bold")
    headers = ("seq", "when", "event", "state", "attempt", "worker", "detail")
    output.table(
        headers,
        [(e.seq, age(e.at, now), e.event, e.to_state, e.attempt, e.worker, _detail(e.detail)) for e in events],
    )


def _print_attempts(attempts: list[Attempt], now: datetime) -> None:
    if attempts:
        output.line("\nattempts", "bold")
        headers = ("attempt", "started", "took", "outcome", "worker", "error")
        output.table(
            headers,
            [(a.attempt, age(a.started_at, now), _took(a), a.outcome, a.worker, _error(a.error)) for a in attempts],
        )


def _print_refusals(refusals: list[Refusal], now: datetime) -> None:
    if refusals:
        output.line("\nrefused", "bold")
        headers = ("attempt", "verb", "reason", "worker", "last", "times")
        output.table(headers, [(r.attempt, r.verb, r.reason, r.worker, age(r.last_at, now), r.count) for r in refusals])


def _print_replays(replays: list[Job], now: datetime) -> None:
    if replays:
        output.line("\nreplays (holdfast jobs compare ID tells whether they came to the same)", "bold")
        output.table(("id", "state", "created", "error"), [_replay_row(replay, now) for replay in replays])


def _replay_row(replay: Job, now: datetime) -> tuple[object, ...]:
    return replay.id, replay.state, age(replay.created_at, now), _error(replay.last_error)


def _replay(replay: Job) -> dict[str, Any]:
    return {
        "id": replay.id,
        "state": replay.state,
        "created_at": replay.created_at,
        "finished_at": replay.finished_at,
    }


def _took(attempt: Attempt) -> str | None:
    if attempt.finished_at is None:
        return None
    return span((attempt.finished_at - attempt.started_at).total_seconds())


def _compact(value: Any) -> str | None:
    return None if value is None else json_text.dumps(value, ensure_ascii=False)


def _detail(detail: dict[str, Any] | None) -> str | None:
    """Digests are for machines; they are in the JSON form."""
    shown = {name: value for name, value in (detail or {}).items() if not name.endswith("digest")}
    return _compact(shown) if shown else None


def _error(error: dict[str, Any] | None) -> str | None:
    return f"{error.get('code')}: {error.get('message')}" if error else None
