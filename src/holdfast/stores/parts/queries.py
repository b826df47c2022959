"""Questions about jobs, queues, workers and what jobs left behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.domain.artifacts import Artifact, LiveArtifacts
from holdfast.domain.feed import AuditFilter, AuditPage, FeedPage, FeedPlace
from holdfast.domain.job import (
    Attempt,
    AuditEvent,
    Job,
)
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.views import (
    Counted,
    JobFilter,
    Listed,
    Page,
    QueueSettings,
    QueueView,
    Refusal,
    StateCount,
    Stuck,
    WorkerView,
)
from holdfast.stores.database import Database
from holdfast.stores.verbs import (
    announcing,
    artifacts,
    auditing,
    feed,
    listing,
    log_lines,
    querying,
    searching,
    worker_rows,
)
from holdfast.stores.verbs.stuck import stuck


class QueryPart:
    database: Database

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

    def stuck(self, limit: int = 50, queues: Sequence[str] | None = None) -> list[Stuck]:
        """What ought to move and does not, with the reason: a group of jobs by its oldest one."""
        return stuck(self.database, limit, queues)

    def announced_tasks(self) -> list[TaskInfo]:
        return announcing.announced_tasks(self.database)

    def workers(self) -> list[WorkerView]:
        return worker_rows.workers(self.database)

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]:
        """In the order they were said; `after` is the attempt and number of the last line already read."""
        return log_lines.logs(self.database, job_id, attempt, after, limit)

    def last_logs(self, job_id: str, limit: int = 300) -> list[LogLine]:
        return log_lines.last_logs(self.database, job_id, limit)

    def count_logs(self, job_id: str) -> int:
        return log_lines.count_logs(self.database, job_id)

    def listed(
        self,
        *,
        states: Sequence[State] = (),
        queues: Sequence[str] | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Listed]:
        wanted = JobFilter(tuple(states), None if queues is None else tuple(queues), task)
        return searching.search(self.database, wanted, limit, after, True)

    def search(
        self, wanted: JobFilter, limit: int = 50, after: str | None = None, newest_first: bool = True
    ) -> Page[Listed]:
        """In order of their ids, which is that of their creation. A page may be short although there is more: then it
        says how far it looked (`Found`), and `after` goes on from there."""
        return searching.search(self.database, wanted, limit, after, newest_first)

    def count_jobs(self, wanted: JobFilter, most: int = 10_000) -> Counted:
        return searching.count_jobs(self.database, wanted, most)

    def running(self, limit: int = 50) -> list[Listed]:
        """What runs right now, the longest first."""
        return listing.running(self.database, limit)

    def queue_of(self, job_id: str) -> str | None:
        """None when there is no such job."""
        return listing.queue_of(self.database, job_id)

    def queues_of(self, job_ids: Collection[str]) -> dict[str, str]:
        """By their ids; those that are not there are not among them."""
        return listing.queues_of(self.database, job_ids)

    def queue_settings(self, name: str) -> QueueSettings:
        return listing.queue_settings(self.database, name)

    def refusals_in(self, queues: Sequence[str]) -> list[Refusal]:
        return listing.refusals_in(self.database, queues)

    def state_counts(self, queues: Sequence[str] | None = None, most: int = 100_000) -> list[StateCount]:
        return listing.state_counts(self.database, queues, most)

    def history(self, job_id: str, after: int = 0, limit: int = 1000) -> Page[AuditEvent]:
        return feed.history(self.database, job_id, after, limit)

    def feed(self, after: FeedPlace | None, limit: int = 1000) -> FeedPage:
        return feed.feed(self.database, after, limit)

    def audit(self, wanted: AuditFilter, before: FeedPlace | None = None, limit: int = 50) -> AuditPage:
        """The log backwards; a page may be short, and says then how far back it looked."""
        return auditing.audit(self.database, wanted, before, limit)

    def store_id(self) -> str:
        """What this database is called where files of several databases are kept."""
        return artifacts.store_id(self.database)

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files on record, attempt by attempt."""
        return artifacts.of_job(self.database, job_id)

    def live_artifacts(self, job_ids: Sequence[str]) -> LiveArtifacts:
        return artifacts.live(self.database, job_ids)

    def counts(self) -> dict[str, int]:
        return querying.counts(self.database)
