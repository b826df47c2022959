"""The store on SQL: the whole port, over either dialect. Each method is one verb; the verbs live in `verbs/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domain.answers import Beat, Beaten, OperatorAnswer, Reaped, Settled
from holdfast.domain.errors import InvalidInput
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
from holdfast.domain.names import check_name
from holdfast.domain.outcome import Report
from holdfast.domain.views import Page, QueueView, Refusal, SourceView, Stuck
from holdfast.stores.database import Database
from holdfast.stores.statements import limits
from holdfast.stores.verbs import beating, enqueueing, operating, querying, reaping, settling
from holdfast.stores.verbs.claim_one import claim_job
from holdfast.stores.verbs.claiming import Claiming


class SqlStore:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._claiming = Claiming(database)

    def close(self) -> None:
        self.database.close()

    # clients

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        return self.enqueue_many([job], connection)[0]

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """All or nothing. With `connection`, in the user's own transaction: rollback means no job."""
        if connection is None:
            return enqueueing.enqueue(self.database, jobs)
        return enqueueing.enqueue_in(self.database.borrow(connection), jobs)

    async def aenqueue_many(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        """The same on an AsyncSession or AsyncConnection."""
        if not hasattr(connection, "run_sync"):
            raise InvalidInput(
                "connection", f"must be an AsyncSession or AsyncConnection, got {type(connection).__name__}"
            )
        borrow = self.database.borrow
        answers: list[Enqueued] = await connection.run_sync(lambda c: enqueueing.enqueue_in(borrow(c), jobs))
        return answers

    async def aenqueue(self, job: NewJob, connection: Any) -> Enqueued:
        return (await self.aenqueue_many([job], connection))[0]

    # workers

    def claim(
        self,
        worker: str,
        limit: int = 1,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> list[Claimed]:
        return self._claiming.claim(worker, limit, queues, tasks)

    def claim_job(
        self,
        worker: str,
        job_id: str,
        *,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Claimed | None:
        return claim_job(self.database, worker, job_id, lease_seconds - heartbeat_seconds)

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]:
        return beating.heartbeat(self.database, beats)

    def settle(self, reports: Sequence[Report]) -> list[Settled]:
        return settling.settle_reports(self.database, reports)

    def reap(
        self,
        holder: str,
        *,
        period: float = 10.0,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Reaped:
        check_name(holder, "holder")
        return reaping.reap(self.database, holder, period, lease_seconds, heartbeat_seconds)

    # operators

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return operating.cancel(self.database, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return operating.requeue(self.database, job_ids)

    def pause_queue(self, name: str) -> None:
        operating.set_queue(self.database, limits.PAUSE_QUEUE, name)

    def resume_queue(self, name: str) -> None:
        operating.set_queue(self.database, limits.RESUME_QUEUE, name)

    def limit_queue(self, name: str, max_running: int | None) -> None:
        operating.set_queue(self.database, limits.LIMIT_QUEUE, name, max_running=max_running)
        self._claiming.limits_changed()

    def set_source(self, name: str, **changes: Any) -> SourceView:
        changed = operating.set_source(self.database, name, changes)
        self._claiming.limits_changed()
        return changed

    # queries

    def job(self, job_id: str) -> Job:
        return querying.job(self.database, job_id)

    def jobs(
        self,
        *,
        states: Sequence[State] = (),
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Job]:
        return querying.jobs(self.database, states, queue, task, limit, after)

    def events(self, job_id: str) -> list[AuditEvent]:
        return querying.events(self.database, job_id)

    def attempts(self, job_id: str) -> list[Attempt]:
        return querying.attempts(self.database, job_id)

    def refusals(self, job_id: str | None = None) -> list[Refusal]:
        return querying.refusals(self.database, job_id)

    def queues(self) -> list[QueueView]:
        return querying.queues(self.database)

    def sources(self) -> list[SourceView]:
        return querying.sources(self.database)

    def stuck(self, limit: int = 50) -> list[Stuck]:
        return querying.stuck(self.database, limit)

    def counts(self) -> dict[str, int]:
        return querying.counts(self.database)
