"""Queues, sources, workers, tasks, schedules and what is stuck, as a client sees them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.domain.lifecycle import State
from holdfast.domain.sources import Breaker
from holdfast.domain.views import Stuck
from holdfast.serve.api.job_views import JobSummaryView
from holdfast.serve.api.values import Moment, View


class QueueView(View):
    name: str
    ready: int
    scheduled: int
    running: int
    oldest_ready_at: Moment | None
    paused_at: Moment | None
    max_running: int | None


class QueuesView(View):
    queues: list[QueueView]


class QueueSettingsView(View):
    name: str
    paused_at: Moment | None
    max_running: int | None


class SourceView(View):
    name: str
    enabled: bool
    rate_limit_per_minute: float | None
    burst: int
    max_concurrent: int | None
    failure_streak: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    paused_until: Moment | None
    paused_by: Annotated[str | None, Field(description="breaker, operator or retry_after")]
    breaker: Breaker
    breaker_threshold: int
    breaker_pause_seconds: float
    breaker_only: Annotated[list[str] | None, Field(description="only these error codes count; null: all")]
    breaker_ignores: list[str]
    breaker_counts_permanent: bool
    level: Annotated[float | None, Field(description="tokens in its bucket now; null: no rate limit")]
    in_use: Annotated[int, Field(description="jobs that run under it or are inside it")]
    waiting: Annotated[int, Field(description="jobs that are due and wait for it")]
    waiting_at_least: Annotated[bool, Field(description="there are more than `waiting`")]


class SourcesView(View):
    sources: list[SourceView]


class SourceEventView(View):
    """A breaker that moved, or limits that were changed: what is new, and under `before` what it was."""

    id: str
    source: str
    at: Moment
    event: str
    detail: dict[str, Any] | None


class SourceEventsView(View):
    events: list[SourceEventView]
    after: Annotated[str | None, Field(description="for the next page; null: there is none")]


class ClearedView(View):
    cleared: int


class WorkerView(View):
    id: str
    host: str
    pid: int
    state: str
    app: str | None
    queues: Annotated[list[str] | None, Field(description="null: all of them")]
    processes: int
    slots: int
    running: int
    version: str | None
    started_at: Moment
    beat_at: Moment
    stopped_at: Moment | None


class WorkersView(View):
    workers: list[WorkerView]


class TaskView(View):
    name: str
    version: str | None
    kind: str
    on_lost_lease: str
    defaults: dict[str, Any]


class TasksView(View):
    tasks: list[TaskView]


class ScheduleView(View):
    name: str
    task: str
    job: dict[str, Any]
    cron: str | None
    every_seconds: float | None
    timezone: str
    misfire: str
    misfire_limit: int
    misfire_grace_seconds: float
    tick_argument: str | None
    overrides: dict[str, Any]
    paused_at: Moment | None
    next_at: Moment | None
    last_at: Moment | None
    created_at: Moment
    updated_at: Moment


class UnreadableView(View):
    schedule: str
    message: str


class SchedulesView(View):
    schedules: list[ScheduleView]
    unreadable: Annotated[list[UnreadableView], Field(description="their rows make no sense")]


class StuckView(View):
    """A group of jobs that do not move for one reason, by its oldest job."""

    reason: str
    code: str
    detail: str
    advice: str
    count: int
    at_least: Annotated[bool, Field(description="there are more than `count`")]
    job: JobSummaryView

    @classmethod
    def of(cls, stuck: Stuck) -> StuckView:
        return cls.model_validate(stuck)


class StuckListView(View):
    stuck: list[StuckView]


class StateCountView(View):
    state: State
    count: int
    at_least: Annotated[bool, Field(description="there are more than `count`")]


class StatsView(View):
    states: list[StateCountView]


class RefusalView(View):
    job_id: str
    attempt: int
    verb: str
    reason: str
    worker: str
    first_at: Moment
    last_at: Moment
    count: int


class RefusalsView(View):
    refusals: list[RefusalView]
