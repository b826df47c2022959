"""A worker that runs one given job and ends: for whoever is handed ids one at a time, an `rq worker` say.

It is the whole worker, supervisor and exec'd runner, over a store whose claim can only give that one job. So leases,
heartbeats, limits, cancels, logs, results and retries are the same as everywhere. What it leaves out is what makes
sense only for a process that stays: wake-ups, upkeep, a row among the workers, schedules.

The app is imported before the job is claimed: an app that cannot be imported charges nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from holdfast.domain.errors import ConfigurationError, NotFound, StoreUnavailable
from holdfast.domain.events import Event, RunEnded, RunSucceeded
from holdfast.domain.job import Claimed, ClaimedJobs, Job
from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.schedule import Declaration, Fired, ScheduleFailure
from holdfast.domain.sources import SourceDeclaration
from holdfast.domain.timing import Timing
from holdfast.domain.views import WorkerRow
from holdfast.ports import Store
from holdfast.worker.start import Worker
from holdfast.worker.supervisor import Supervisor

# For the app to be imported. One that hangs in its import would else hold this process for ever.
START_SECONDS = 60.0
ANNOUNCE_SECONDS = 60.0
ANNOUNCING = "announce_tasks_of_one_job"
ANNOUNCING_SOURCES = "announce_sources_of_one_job"


@dataclass
class Errand:
    """The one job; what came of asking for it."""

    job_id: str
    request_id: str = field(default_factory=lambda: secrets.token_hex(16))
    asked: bool = False
    why_not: str | None = None
    unknown: Job | None = None  # the job, when it is of a task that this app lacks


@dataclass
class OneJob(Worker):
    """`run` returns when the store has the outcome of the job's attempt, or the job could not be claimed."""

    job_id: str = ""
    errand: Errand = field(init=False)
    ended: RunEnded | None = field(default=None, init=False)
    watched: ClassVar[tuple[type, ...]] = (RunEnded, RunSucceeded)

    def __post_init__(self) -> None:
        self.errand = Errand(self.job_id)
        super().__post_init__()
        self.supervisor.parts.append(_StartLimit(self.supervisor))

    def _open(self, timeout_seconds: float) -> Store:
        store = super()._open(timeout_seconds)
        return cast(Store, OneJobStore(store, self.errand, self.supervisor.timing()))

    def _watch(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.ended = event


class OneJobStore:
    """The store, as far as one job is concerned."""

    def __init__(self, store: Store, errand: Errand, timing: Timing) -> None:
        self._store = store
        self._errand = errand
        self._timing = timing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(
        self, worker: str, _limit: int, _queues: Sequence[str] | None, tasks: Sequence[str] | None
    ) -> ClaimedJobs:
        """The job, once; nothing ever after."""
        errand = self._errand
        if errand.asked:
            return ClaimedJobs()
        claimed = ClaimedJobs()
        errand.why_not = self._unfit(tasks or ())
        if errand.why_not is None:
            claimed = self._claim(worker)
            if not claimed and claimed.again_in is not None:
                claimed = self._claim(worker)
            if not claimed:
                errand.why_not = _why_not(self._store.job(errand.job_id), busy=claimed.again_in is not None)
        errand.asked = True
        return claimed

    def _unfit(self, tasks: Sequence[str]) -> str | None:
        try:
            job = self._store.job(self._errand.job_id)
        except NotFound:
            return "there is no such job"
        if job.task in tasks:
            return None
        self._errand.unknown = job
        return f"this app has no task {job.task}"

    def _claim(self, worker: str) -> ClaimedJobs:
        try:
            return self._claim_once(worker)
        except StoreUnavailable:  # the answer may have been lost: the same request gets it again
            return self._claim_once(worker)

    def _claim_once(self, worker: str) -> ClaimedJobs:
        return self._store.claim_jobs(
            worker,
            [self._errand.job_id],
            request_id=self._errand.request_id,
            lease_seconds=self._timing.lease,
            heartbeat_seconds=self._timing.heartbeat,
        )

    def recover(self, _worker: str) -> list[Claimed]:
        return []

    def announce(self, tasks: Sequence[TaskInfo]) -> None:
        """Many such processes come and go: one of them a minute tells what it knows."""
        if self._store.take_turn(ANNOUNCING, "one job", ANNOUNCE_SECONDS):
            self._store.announce(tasks)

    def announce_sources(self, declared: Sequence[SourceDeclaration]) -> None:
        if self._store.take_turn(ANNOUNCING_SOURCES, "one job", ANNOUNCE_SECONDS):
            self._store.announce_sources(declared)

    def forget_workers(self, _age_seconds: float = 0.0) -> int:
        return 0

    def keep_worker(self, _row: WorkerRow) -> None:
        return

    def announce_schedules(self, _declared: Sequence[Declaration]) -> tuple[ScheduleFailure, ...]:
        return ()

    def keep_schedules(self, _declared: Sequence[Declaration]) -> None:
        return

    def fire_schedules(self, _holder: str, *, lease_seconds: float = 0.0) -> Fired:  # noqa: ARG002
        return Fired()


def _why_not(job: Job, *, busy: bool) -> str:
    if job.state is State.RUNNING:
        return "another worker holds it"
    if busy and job.state in (State.PENDING, State.RETRYABLE):
        return "others were busy with its source or queue all the while; ask again"
    if job.state in (State.PENDING, State.RETRYABLE):
        return "it is not due yet, its queue is paused, or a limit is reached"
    return f"it is {job.state} already"


class _StartLimit:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def step(self, _now: float) -> None:
        supervisor = self._supervisor
        if not supervisor.pool.ready and supervisor.seconds_since_answer() > START_SECONDS:
            supervisor.refusal = ConfigurationError(
                f"the app was not imported within {START_SECONDS:g} s: import it by hand to see what it waits for"
            )

    def wake_at(self) -> float:
        return float("inf")
