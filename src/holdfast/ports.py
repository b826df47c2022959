"""The protocols at which the layers meet.

A store is synchronous; one method is one verb is one transaction. `connection` on the enqueue verbs is the user's own
SQLAlchemy Connection or Session, psycopg connection, or (for the async forms) AsyncSession or AsyncConnection: the job
then exists if and only if the user's transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.domain.answers import Beat, Beaten, OperatorAnswer, Reaped, Settled
from holdfast.domain.job import (
    DEFAULT_HEARTBEAT_SECONDS,
    DEFAULT_LEASE_SECONDS,
    Attempt,
    AuditEvent,
    Claimed,
    Enqueued,
    Job,
    NewJob,
)
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Report
from holdfast.domain.views import Page, QueueView, Refusal, SourceView, Stuck, WorkerRow, WorkerView


class EnqueueStore(Protocol):
    """What a client needs."""

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued: ...

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]: ...

    def announced(self, name: str) -> TaskInfo | None: ...


class WorkStore(Protocol):
    """What a worker needs."""

    def claim(
        self,
        worker: str,
        limit: int = 1,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> list[Claimed]: ...

    def recover(self, worker: str) -> list[Claimed]: ...

    def claim_job(
        self,
        worker: str,
        job_id: str,
        *,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Claimed | None: ...

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]: ...

    def settle(self, reports: Sequence[Report]) -> list[Settled]: ...

    def announce(self, tasks: Sequence[TaskInfo]) -> None: ...

    def keep_worker(self, row: WorkerRow) -> None: ...

    def forget_workers(self, age_seconds: float = 86_400.0) -> int: ...

    def append_logs(self, lines: Sequence[LogLine]) -> None: ...

    def reap(
        self,
        holder: str,
        *,
        period: float = 10.0,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Reaped: ...


class OperatorStore(Protocol):
    """What an operator needs."""

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]: ...

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]: ...

    def pause_queue(self, name: str) -> None: ...

    def resume_queue(self, name: str) -> None: ...

    def limit_queue(self, name: str, max_running: int | None) -> None: ...

    def set_source(self, name: str, **limits: Any) -> SourceView: ...

    def sources(self) -> list[SourceView]: ...

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

    def events(self, job_id: str) -> list[AuditEvent]: ...

    def attempts(self, job_id: str) -> list[Attempt]: ...

    def refusals(self, job_id: str | None = None) -> list[Refusal]: ...

    def queues(self) -> list[QueueView]: ...

    def stuck(self, limit: int = 50) -> list[Stuck]: ...

    def announced_tasks(self) -> list[TaskInfo]: ...

    def workers(self) -> list[WorkerView]: ...

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]: ...


class Store(EnqueueStore, WorkStore, OperatorStore, Protocol):
    """The whole port."""

    def close(self) -> None: ...
