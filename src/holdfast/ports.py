"""The protocols at which the layers meet.

A store is synchronous; one method is one verb is one transaction. `connection` on the enqueue verbs is the user's own
SQLAlchemy Connection or Session, psycopg connection, or (for the async forms) AsyncSession or AsyncConnection: the job
then exists if and only if the user's transaction commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from holdfast.domain.activity import Activity, Kind, RolledUp
from holdfast.domain.answers import Beat, Beaten, OperatorAnswer, Reaped, Reason, Settled, Verb
from holdfast.domain.artifacts import Artifact, LiveArtifacts
from holdfast.domain.feed import AuditFilter, AuditPage, FeedPage, FeedPlace
from holdfast.domain.job import (
    DEFAULT_HEARTBEAT_SECONDS,
    DEFAULT_LEASE_SECONDS,
    Attempt,
    AuditEvent,
    Claimed,
    ClaimedJobs,
    Enqueued,
    Job,
    NewJob,
)
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.offers import Offer
from holdfast.domain.outcome import Report
from holdfast.domain.record import NewRecord, Record, Written
from holdfast.domain.retention import Group, Kept, Pruned, Retired, Rules
from holdfast.domain.schedule import Declaration, Fired, Schedule, ScheduleFailure, Tick
from holdfast.domain.sources import Cached, Entered, Entry, Leaving, SourceDeclaration
from holdfast.domain.tokens import AccessRefusal, Attempted, Issued, NewToken, Standing, Token
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
    WorkerRow,
    WorkerView,
)


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
        *,
        credential: str = "",
        request_id: str | None = None,
    ) -> ClaimedJobs: ...

    def known_requests(self, requests: Iterable[tuple[str, str]]) -> set[tuple[str, str]]: ...

    def claim_again(self, credential: str, request_id: str) -> list[Claimed] | None: ...

    def recover(self, worker: str, *, credential: str = "") -> list[Claimed]: ...

    def claim_job(
        self,
        worker: str,
        job_id: str,
        *,
        credential: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Claimed | None: ...

    def claim_jobs(
        self,
        worker: str,
        job_ids: Sequence[str],
        *,
        credential: str = "",
        request_id: str | None = None,
        messages: Mapping[str, str] | None = None,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> ClaimedJobs: ...

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]: ...

    def settle(self, reports: Sequence[Report]) -> list[Settled]: ...

    def announce(self, tasks: Sequence[TaskInfo]) -> None: ...

    def keep_worker(self, row: WorkerRow) -> None: ...

    def forget_workers(self, age_seconds: float = 86_400.0) -> int: ...

    def append_logs(self, lines: Sequence[LogLine]) -> None: ...

    def announce_schedules(self, declared: Sequence[Declaration]) -> tuple[ScheduleFailure, ...]: ...

    def keep_schedules(self, declared: Sequence[Declaration]) -> None: ...

    def fire_schedules(self, holder: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Fired: ...

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

    def replay(self, job_id: str, new_id: str | None = None) -> Enqueued: ...

    def pause_queue(self, name: str) -> None: ...

    def resume_queue(self, name: str) -> None: ...

    def limit_queue(self, name: str, max_running: int | None) -> None: ...

    def set_source(self, name: str, **limits: Any) -> SourceView: ...

    def resume_source(self, name: str) -> SourceView: ...

    def sources(self) -> list[SourceView]: ...

    def source(self, name: str) -> SourceView: ...

    def source_events(
        self, source: str | None = None, limit: int = 50, after: str | None = None
    ) -> Page[SourceEvent]: ...

    def replays(self, job_id: str) -> list[Job]: ...

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

    def stuck(self, limit: int = 50, queues: Sequence[str] | None = None) -> list[Stuck]: ...

    def announced_tasks(self) -> list[TaskInfo]: ...

    def workers(self) -> list[WorkerView]: ...

    def schedules(self) -> list[Schedule]: ...

    def unreadable_schedules(self) -> list[ScheduleFailure]: ...

    def schedule(self, name: str) -> Schedule: ...

    def ticks(self, name: str, limit: int = 50) -> list[Tick]: ...

    def add_schedule(self, schedule: Declaration) -> Schedule: ...

    def set_schedule(self, name: str, **changes: Any) -> Schedule: ...

    def reset_schedule(self, name: str) -> Schedule: ...

    def pause_schedule(self, name: str) -> Schedule: ...

    def resume_schedule(self, name: str) -> Schedule: ...

    def remove_schedule(self, name: str) -> bool: ...

    def run_schedule_now(self, name: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Enqueued: ...

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]: ...

    def last_logs(self, job_id: str, limit: int = 300) -> list[LogLine]: ...

    def count_logs(self, job_id: str) -> int: ...

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

    def dead_groups(self, queues: Sequence[str] | None = None, most: int = 10_000) -> DeadGroups: ...

    def queue_of(self, job_id: str) -> str | None: ...

    def queues_of(self, job_ids: Collection[str]) -> dict[str, str]: ...

    def queue_settings(self, name: str) -> QueueSettings: ...

    def refusals_in(self, queues: Sequence[str]) -> list[Refusal]: ...

    def state_counts(self, queues: Sequence[str] | None = None, most: int = 100_000) -> list[StateCount]:
        """Of each queue and state at most so many are counted; beyond that the answer is "at least"."""

    def history(self, job_id: str, after: int = 0, limit: int = 1000) -> Page[AuditEvent]: ...

    def feed(self, after: FeedPlace | None, limit: int = 1000) -> FeedPage: ...

    def audit(self, wanted: AuditFilter, before: FeedPlace | None = None, limit: int = 50) -> AuditPage:
        """The newest first. It looks at so many rows at most, and says how far back it looked."""


class ActivityStore(Protocol):
    """What happened minute by minute: kept by whoever does upkeep, read by whoever draws charts."""

    def roll_up(self, holder: str) -> RolledUp | None:
        """One pass over the newest part of the audit log; None when it is not this one's turn."""

    def activity(
        self, kind: Kind, seconds: float, names: Sequence[str] | None = None, step_seconds: float = 60.0
    ) -> Activity: ...

    def forget_minutes(self, keep_seconds: float, limit: int) -> int: ...


class SourceStore(Protocol):
    """What a running job wants of sources. `lease` is the attempt it belongs to: LeaseLost when that is over."""

    def enter_source(self, lease: Beat, entry: Entry) -> Entered: ...

    def leave_source(self, lease: Beat, leaving: Leaving) -> None: ...

    def announce_sources(self, declared: Sequence[SourceDeclaration]) -> None: ...

    def forget_holds(self, limit: int) -> int: ...


class CacheStore(Protocol):
    """What outside systems answered, kept for a while. `lease` is the attempt that asks, if one does: over HTTP only
    who holds a job may ask (LeaseLost)."""

    def cached(self, source: str, key: str, lease: Beat | None = None) -> Cached | None: ...

    def keep_cached(self, source: str, key: str, value: Any, ttl_seconds: float, lease: Beat | None = None) -> None: ...

    def forget_cached(self, limit: int) -> int: ...

    def clear_cache(self, source: str, key: str | None = None) -> int: ...


class RecordStore(Protocol):
    """The deduplicated output of jobs."""

    def write_records(self, new: Sequence[NewRecord], lease: Beat | None = None) -> list[Written]:
        """All or nothing. With a lease: only if it is still held (LeaseLost), and as written by its attempt."""

    def records(
        self,
        *,
        scope: str | None = None,
        source: str | None = None,
        job_id: str | None = None,
        dedupe_key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Record]: ...

    def record(self, record_id: str) -> Record: ...

    def delete_records(self, scope: str, source: str | None = None, dedupe_key: str | None = None) -> int: ...


class ArtifactRecordStore(Protocol):
    """What is on record of the files that jobs saved."""

    def store_id(self) -> str: ...

    def artifacts(self, job_id: str) -> list[Artifact]: ...

    def live_artifacts(self, job_ids: Sequence[str]) -> LiveArtifacts: ...


class UpkeepStore(Protocol):
    """What any process may do for all of them, one at a time: see `maintenance/`."""

    def take_turn(self, name: str, holder: str, period: float) -> bool: ...

    def keep_turn(self, name: str, holder: str) -> bool: ...

    def retention_rules(self) -> Rules: ...

    def retention_due(self, what: Kept) -> list[Group]: ...

    def prune(self, group: Group, limit: int) -> Pruned: ...

    def retire(self, group: Group, limit: int) -> Retired: ...

    def forget_ticks(self, keep_seconds: float, limit: int) -> int: ...

    def forget_source_events(self, keep_seconds: float, limit: int) -> int: ...

    def forget_refusals(self, keep_seconds: float, after: str | None, limit: int) -> tuple[int, str | None]: ...

    def forget_claim_requests(self, keep_seconds: float, limit: int) -> int: ...

    def checkpoint(self) -> bool: ...


class TokenStore(Protocol):
    """Who may speak to a control plane, and who was turned away."""

    def create_token(self, new: NewToken) -> Issued: ...

    def rotate_token(self, name: str) -> Issued: ...

    def revoke_token(self, name: str) -> Token: ...

    def tokens(self) -> list[Token]: ...

    def any_live_token(self) -> bool: ...

    def standings(self, ids: Sequence[str]) -> dict[str, Standing]: ...

    def lease_reasons(self, shown: Sequence[Beat]) -> list[Reason | None]: ...

    def check_lease(self, lease: Beat, verb: Verb) -> Reason | None: ...

    def keep_worker_of(self, credential: str, row: WorkerRow) -> bool: ...

    def touch_tokens(self, ids: Sequence[str]) -> None: ...

    def create_admin_link(self, seconds: float) -> Issued: ...

    def use_admin_link(self, code: str) -> Issued | None: ...

    def record_access_refusals(self, attempts: Sequence[Attempted]) -> None: ...

    def access_refusals(self, limit: int = 1000) -> list[AccessRefusal]: ...

    def forget_access_refusals(self, keep_seconds: float) -> None: ...


class Store(
    EnqueueStore,
    WorkStore,
    OperatorStore,
    UpkeepStore,
    ArtifactRecordStore,
    TokenStore,
    ActivityStore,
    SourceStore,
    CacheStore,
    RecordStore,
    Protocol,
):
    """The whole port."""

    def close(self) -> None: ...


class OfferStore(Store, Protocol):
    """What a transport needs beside the port: which jobs it may name in messages, and what became of them."""

    def offers(self, queue: str, limit: int) -> list[Offer]: ...

    def offers_of(self, job_ids: Sequence[str]) -> dict[str, Offer]: ...

    def offered_queues(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it is found: its path below the root, and when it was last changed by the clock of whoever keeps it."""

    path: str
    modified: float


class ArtifactStore(Protocol):
    """Where the files of one database's jobs are kept. A reference is `<job id>/<attempt>/<name>`."""

    @property
    def place(self) -> str:
        """Where that is, as people may see it."""

    def write(self, reference: str, data: bytes) -> None:
        """Whole or not at all; once it returns, the file is there for every reader."""

    def read(self, reference: str) -> bytes: ...

    def open(self, reference: str) -> BinaryIO: ...

    def delete(self, stored: str) -> None: ...

    def job_folders(self) -> Iterator[str]: ...

    def files(self, job_id: str) -> Iterator[StoredFile]: ...

    def remove_empty(self, job_id: str) -> None: ...

    def now(self) -> float:
        """The time by the clock that `StoredFile.modified` comes from."""

    def check(self) -> None:
        """Write, read and delete a probe; an error says what cannot be done."""
