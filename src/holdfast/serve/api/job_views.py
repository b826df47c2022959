"""A job, its history and what it said, as a client sees them: never a lease token, nor a digest of one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.domain.artifacts import Artifact
from holdfast.domain.comparison import Comparison
from holdfast.domain.job import AuditEvent, Enqueued, Job
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.views import Listed
from holdfast.serve.api.values import Moment, View

# Of the audit log's detail: digests are the engine's, to recognise a report that comes again.
_DIGESTS = ("report", "lease")


class EnqueuedView(View):
    id: str
    created: Annotated[bool, Field(description="false: a job that was there already stands in for it")]
    state: State


class BatchView(View):
    jobs: list[EnqueuedView]

    @classmethod
    def of(cls, answers: list[Enqueued]) -> BatchView:
        return cls(jobs=[EnqueuedView.model_validate(answer) for answer in answers])


class JobSummaryView(View):
    """The columns of a job but those that user code fills, which may be large."""

    id: str
    task: str
    task_version: str | None
    queue: str
    state: State
    priority: int
    run_after: Moment
    spec_hash: str | None
    unique_key: str | None
    source: str | None
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    retry: Any
    timeout_seconds: float | None
    lease_seconds: float
    lease_owner: str | None
    lease_expires_at: Moment | None
    claimed_at: Moment | None
    heartbeat_at: Moment | None
    cancel_requested_at: Moment | None
    result_ref: str | None
    traceparent: str | None
    replay_of: str | None
    webhook: Any
    seq: int
    transition: str
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class JobView(JobSummaryView):
    """The columns of a job."""

    payload: Any
    progress: Any
    result: Any
    last_error: Any


class ListedView(JobView):
    """A job in a list: what takes more than 4 KB of JSON is null and named in `omitted`."""

    omitted: list[str]

    @classmethod
    def of(cls, listed: Listed) -> ListedView:
        columns = {name: getattr(listed.job, name) for name in JobView.model_fields}
        return cls(**(columns | dict.fromkeys(listed.omitted)), omitted=list(listed.omitted))


class JobsView(View):
    jobs: list[ListedView]
    after: Annotated[str | None, Field(description="continues the list; null at its end")]


class OperatedView(View):
    id: str
    did: Annotated[str, Field(description="cancelled, cancel_requested or requeued")]
    state: State | None


class EventView(View):
    job_id: str
    seq: int
    at: Moment
    event: str
    from_state: str | None
    to_state: str | None
    attempt: int
    worker: str | None
    detail: dict[str, Any] | None

    @classmethod
    def of(cls, event: AuditEvent) -> EventView:
        view = cls.model_validate(event)
        shown = {name: value for name, value in (event.detail or {}).items() if name not in _DIGESTS}
        return view.model_copy(update={"detail": shown or None})


class EventsView(View):
    events: list[EventView]
    after: Annotated[int | None, Field(description="continues the history; null at its end")]


class AttemptView(View):
    job_id: str
    attempt: int
    worker: str | None
    started_at: Moment
    finished_at: Moment | None
    outcome: str | None
    error: Any
    exit_code: int | None
    signal: int | None
    duration_ms: int | None
    cpu_ms: int | None
    max_rss_kb: int | None


class AttemptsView(View):
    attempts: list[AttemptView]


class LineView(View):
    attempt: int
    number: int
    at: Moment
    stream: Stream
    message: str
    level: str | None
    fields: dict[str, Any]


class LinesView(View):
    lines: list[LineView]
    after: Annotated[str | None, Field(description="continues the lines; null when these were the last")]

    @classmethod
    def of(cls, lines: list[LogLine], more: bool) -> LinesView:
        after = f"{lines[-1].attempt}.{lines[-1].number}" if more else None
        return cls(lines=[LineView.model_validate(line) for line in lines], after=after)


class ArtifactView(View):
    reference: str
    attempt: int
    name: str
    media_type: str
    bytes: int
    sha256: str
    saved_at: Moment | None


class ArtifactsView(View):
    artifacts: list[ArtifactView]

    @classmethod
    def of(cls, saved: list[Artifact]) -> ArtifactsView:
        return cls(artifacts=[ArtifactView.model_validate(artifact) for artifact in saved])


class ReplayView(View):
    id: str
    state: State
    created_at: Moment
    finished_at: Moment | None
    equal: Annotated[bool | None, Field(description="to the original; null: not known, or not yet")]
    differences: list[str]
    more: Annotated[int, Field(description="differences beyond those")]

    @classmethod
    def of(cls, replay: Job, found: Comparison) -> ReplayView:
        return cls(
            id=replay.id,
            state=replay.state,
            created_at=replay.created_at,
            finished_at=replay.finished_at,
            equal=found.equal,
            differences=list(found.differences),
            more=found.more,
        )


class ReplaysView(View):
    replay_of: Annotated[str | None, Field(description="the job that this one is itself a replay of")]
    root: Annotated[str | None, Field(description="the first of that chain")]
    replays: list[ReplayView]
