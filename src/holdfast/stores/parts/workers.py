"""What workers do: claim, renew, settle, reap, and tell what they are and know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.domain.answers import Beat, Beaten, Reaped, Settled
from holdfast.domain.job import (
    DEFAULT_HEARTBEAT_SECONDS,
    DEFAULT_LEASE_SECONDS,
    Claimed,
    ClaimedJobs,
)
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_name
from holdfast.domain.outcome import Report
from holdfast.domain.views import (
    WorkerRow,
)
from holdfast.stores import claimable as claimable_now
from holdfast.stores.database import ContentCheck, Database
from holdfast.stores.verbs import (
    announcing,
    beating,
    claim_requests,
    log_lines,
    reaping,
    settling,
    worker_rows,
)
from holdfast.stores.verbs.claim_named import claim_jobs
from holdfast.stores.verbs.claiming import Claiming
from holdfast.stores.verbs.settle_in import settle_in


class WorkerPart:
    database: Database
    _claiming: Claiming
    _claimable: Callable[[], None]

    def claim(
        self,
        worker: str,
        limit: int = 1,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        *,
        credential: str = "",
        request_id: str | None = None,
    ) -> ClaimedJobs:
        """The leases belong to the credential. The same request id again gets the same jobs, not others."""
        return self._claiming.claim(worker, limit, queues, tasks, credential, request_id)

    def claim_again(self, credential: str, request_id: str) -> list[Claimed] | None:
        """What a claim with this request id was given, as far as it is still held; None when it was given nothing."""
        return claim_requests.granted(self.database, credential, request_id)

    def known_requests(self, requests: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Which of these (credential, request id) were given something: one look for many who wait."""
        return claim_requests.known(self.database, requests)

    def forget_claim_requests(self, keep_seconds: float, limit: int) -> int:
        return claim_requests.forget(self.database, keep_seconds, limit)

    def recover(self, worker: str, *, credential: str = "") -> list[Claimed]:
        """Jobs that this store claimed while the answer was lost on its way: they are this worker's, under leases that
        nobody knows of."""
        return self._claiming.recover(worker, credential)

    def claim_job(
        self,
        worker: str,
        job_id: str,
        *,
        credential: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Claimed | None:
        """The job under a fresh lease; None when it is not claimable now (held, not due, finished, not admitted)."""
        gap = lease_seconds - heartbeat_seconds
        found = claim_jobs(self.database, self._claiming, worker, [job_id], gap, credential)
        return found[0] if found else None

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
    ) -> ClaimedJobs:
        """Of many at once those that could be claimed; `messages` has the message that named each of them."""
        gap = lease_seconds - heartbeat_seconds
        return claim_jobs(
            self.database, self._claiming, worker, job_ids, gap, credential, request_id, messages, queues, tasks
        )

    def heartbeat(self, beats: Sequence[Beat]) -> list[Beaten]:
        with ContentCheck(self.database, "progress"):
            return beating.heartbeat(self.database, beats)

    def settle(self, reports: Sequence[Report]) -> list[Settled]:
        with ContentCheck(self.database, "report"):
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
        if claimable_now.by_settle(reaped.settled) or (reaped.clock is not None and reaped.clock.jobs):
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
        with ContentCheck(self.database, "lines"):
            log_lines.append_logs(self.database, lines)
