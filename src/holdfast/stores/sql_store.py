"""The store on SQL: the whole port, over either dialect. Each method is one verb; the verbs live in `verbs/`.

`claimable` is called after a commit of the store's own that leaves a job which can be claimed at once; `before_close`
before the connections go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_name
from holdfast.domain.outcome import Report
from holdfast.domain.views import Page, QueueView, Refusal, SourceView, Stuck, WorkerRow, WorkerView
from holdfast.stores import claimable as claimable_now
from holdfast.stores.database import Database, utc_now
from holdfast.stores.statements import limits
from holdfast.stores.verbs import (
    announcing,
    beating,
    enqueueing,
    log_lines,
    operating,
    querying,
    reaping,
    settling,
    worker_rows,
)
from holdfast.stores.verbs.claim_one import claim_job
from holdfast.stores.verbs.claiming import Claiming
from holdfast.stores.verbs.settle_in import settle_in


def _nobody() -> None:
    """Nobody waits to be told."""


class SqlStore:
    def __init__(
        self,
        database: Database,
        claimable: Callable[[], None] | None = None,
        before_close: Callable[[], None] | None = None,
    ) -> None:
        self.database = database
        self._claiming = Claiming(database)
        self._claimable = claimable or _nobody
        self._before_close = before_close or _nobody

    def close(self) -> None:
        self._before_close()
        self.database.close()

    # clients

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        return self.enqueue_many([job], connection)[0]

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """All or nothing. With `connection`, in the user's own transaction: rollback means no job."""
        if connection is None:
            answers = enqueueing.enqueue(self.database, jobs)
            if claimable_now.by_enqueue(jobs, answers, utc_now()):
                self._claimable()
            return answers
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

    def recover(self, worker: str) -> list[Claimed]:
        """Jobs that this store claimed while the answer was lost on its way: they are this worker's, under leases that
        nobody knows of."""
        return self._claiming.recover(worker)

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
        answers = settling.settle_reports(self.database, reports)
        if claimable_now.by_settle(answers):
            self._claimable()
        return answers

    def settle_in(self, connection: Any, report: Report) -> Settled:
        """One report in the user's own open Postgres transaction."""
        return settle_in(connection, report)

    def reap(
        self,
        holder: str,
        *,
        period: float = 10.0,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Reaped:
        check_name(holder, "holder")
        reaped = reaping.reap(self.database, holder, period, lease_seconds, heartbeat_seconds)
        if claimable_now.by_settle(reaped.settled):
            self._claimable()
        return reaped

    def announce(self, tasks: Sequence[TaskInfo]) -> None:
        announcing.announce(self.database, tasks)

    def keep_worker(self, row: WorkerRow) -> None:
        worker_rows.keep_worker(self.database, row)

    def forget_workers(self, age_seconds: float = worker_rows.FORGOTTEN_AFTER_SECONDS) -> int:
        """Drop the rows of workers that were last alive longer ago than that; how many they were."""
        return worker_rows.forget_workers(self.database, age_seconds)

    def append_logs(self, lines: Sequence[LogLine]) -> None:
        log_lines.append_logs(self.database, lines)

    # operators

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return operating.cancel(self.database, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        answers = operating.requeue(self.database, job_ids)
        if claimable_now.by_operator(answers):
            self._claimable()
        return answers

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

    def announced(self, name: str) -> TaskInfo | None:
        return announcing.announced(self.database, name)

    def announced_tasks(self) -> list[TaskInfo]:
        return announcing.announced_tasks(self.database)

    def workers(self) -> list[WorkerView]:
        return worker_rows.workers(self.database)

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]:
        """In the order they were said; `after` is the attempt and number of the last line already read."""
        return log_lines.logs(self.database, job_id, attempt, after, limit)

    def counts(self) -> dict[str, int]:
        return querying.counts(self.database)
