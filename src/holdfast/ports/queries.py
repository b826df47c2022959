"""What the command line, the API and the pages ask. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.domain.feed import AuditFilter, AuditPage, FeedPage, FeedPlace
    from holdfast.domain.job import Attempt, AuditEvent, Job
    from holdfast.domain.lifecycle import State
    from holdfast.domain.logs import LogLine
    from holdfast.domain.manifest import TaskInfo
    from holdfast.domain.schedule import Schedule, ScheduleFailure, Tick
    from holdfast.domain.views import (
        Counted,
        DeadGroups,
        JobFilter,
        Listed,
        Page,
        QueueSettings,
        QueueView,
        Refusal,
        SourceEvent,
        SourceView,
        StateCount,
        Stuck,
        WorkerView,
    )


class JobQueries(Protocol):
    """What people, pages and programs ask about jobs: which there are, and what became of them."""

    def job(self, job_id: str) -> Job: ...

    def jobs(
        self,
        *,
        states: Sequence[State] = (),
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Job]: ...

    def listed(
        self,
        *,
        states: Sequence[State] = (),
        queues: Sequence[str] | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Listed]: ...

    def search(
        self, wanted: JobFilter, limit: int = 50, after: str | None = None, newest_first: bool = True
    ) -> Page[Listed]: ...

    def count_jobs(self, wanted: JobFilter, most: int = 10_000) -> Counted: ...

    def queue_of(self, job_id: str) -> str | None: ...

    def queues_of(self, job_ids: Collection[str]) -> dict[str, str]: ...

    def replays(self, job_id: str) -> list[Job]: ...

    def events(self, job_id: str) -> list[AuditEvent]: ...

    def history(self, job_id: str, after: int = 0, limit: int = 1000) -> Page[AuditEvent]: ...

    def attempts(self, job_id: str) -> list[Attempt]: ...

    def refusals(self, job_id: str | None = None) -> list[Refusal]: ...

    def refusals_in(self, queues: Sequence[str]) -> list[Refusal]: ...

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]: ...

    def last_logs(self, job_id: str, limit: int = 300) -> list[LogLine]: ...

    def count_logs(self, job_id: str) -> int: ...

    def state_counts(self, queues: Sequence[str] | None = None, most: int = 100_000) -> list[StateCount]:
        """Of each queue and state at most so many are counted; beyond that the answer is "at least"."""

    def stuck(self, limit: int = 50, queues: Sequence[str] | None = None) -> list[Stuck]: ...

    def dead_groups(self, queues: Sequence[str] | None = None, most: int = 10_000) -> DeadGroups: ...

    def feed(self, after: FeedPlace | None, limit: int = 1000) -> FeedPage: ...

    def audit(self, wanted: AuditFilter, before: FeedPlace | None = None, limit: int = 50) -> AuditPage:
        """The newest first. It looks at so many rows at most, and says how far back it looked."""


class FleetQueries(Protocol):
    """What they ask about all that jobs need: queues, sources, workers, tasks, schedules."""

    def queues(self) -> list[QueueView]: ...

    def queue_settings(self, name: str) -> QueueSettings: ...

    def sources(self) -> list[SourceView]: ...

    def source(self, name: str) -> SourceView: ...

    def source_events(
        self, source: str | None = None, limit: int = 50, after: str | None = None
    ) -> Page[SourceEvent]: ...

    def workers(self) -> list[WorkerView]: ...

    def announced_tasks(self) -> list[TaskInfo]: ...

    def schedules(self) -> list[Schedule]: ...

    def unreadable_schedules(self) -> list[ScheduleFailure]: ...

    def schedule(self, name: str) -> Schedule: ...

    def ticks(self, name: str, limit: int = 50) -> list[Tick]: ...
