"""What a worker asks: jobs, and to keep what it tells of them and of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.domain.job import DEFAULT_HEARTBEAT_SECONDS, DEFAULT_LEASE_SECONDS, Claimed, ClaimedJobs

if TYPE_CHECKING:
    from holdfast.domain.answers import Beat, Beaten, Reaped, Settled
    from holdfast.domain.logs import LogLine
    from holdfast.domain.manifest import TaskInfo
    from holdfast.domain.outcome import Report
    from holdfast.domain.schedule import Declaration, Fired, ScheduleFailure
    from holdfast.domain.views import WorkerRow


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
