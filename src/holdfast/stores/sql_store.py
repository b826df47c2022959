"""The store on SQL: the whole port, over either dialect. Each method is one verb; the verbs live in `verbs/`.

`claimable` is called after a commit of the store's own that leaves a job which can be claimed at once; `before_close`
before the connections go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.domain.answers import Beat, Beaten, OperatorAnswer, Reaped, Reason, Settled
from holdfast.domain.artifacts import Artifact, LiveArtifacts
from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import FeedPage, FeedPlace
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
from holdfast.domain.offers import Offer
from holdfast.domain.outcome import Report
from holdfast.domain.retention import Group, Kept, Preview, Pruned, Retired, Rules, Turn, Watermark
from holdfast.domain.schedule import Declaration, Fired, Outcome, Schedule, ScheduleFailure, Tick
from holdfast.domain.tokens import AccessRefusal, Attempted, Issued, NewToken, Standing, Token
from holdfast.domain.views import (
    DeadGroup,
    Listed,
    Page,
    QueueSettings,
    QueueView,
    Refusal,
    SourceView,
    StateCount,
    Stuck,
    WorkerRow,
    WorkerView,
)
from holdfast.stores import claimable as claimable_now
from holdfast.stores.database import Database, utc_now
from holdfast.stores.statements import limits
from holdfast.stores.verbs import (
    announcing,
    artifacts,
    beating,
    claim_requests,
    dead,
    duties,
    enqueueing,
    feed,
    firing,
    listing,
    log_lines,
    offers,
    operating,
    proving,
    querying,
    reaping,
    replaying,
    retaining,
    scheduling,
    settling,
    tokens,
    worker_rows,
)
from holdfast.stores.verbs.claim_named import claim_jobs
from holdfast.stores.verbs.claiming import Claiming
from holdfast.stores.verbs.settle_in import settle_in
from holdfast.stores.verbs.stuck import stuck
from holdfast.stores.verbs.tokens import MOST_REFUSALS


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
        *,
        credential: str = "",
        request_id: str | None = None,
    ) -> list[Claimed]:
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
    ) -> list[Claimed]:
        """Of many at once those that could be claimed; `messages` has the message that named each of them."""
        gap = lease_seconds - heartbeat_seconds
        return claim_jobs(
            self.database, self._claiming, worker, job_ids, gap, credential, request_id, messages, queues, tasks
        )

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

    def announce_schedules(self, declared: Sequence[Declaration]) -> tuple[ScheduleFailure, ...]:
        """What a worker's code declares, when it starts; those that could not follow it."""
        return scheduling.announce(self.database, declared)

    def keep_schedules(self, declared: Sequence[Declaration]) -> None:
        """They are still declared: says so where nothing differs, and changes nothing else."""
        scheduling.touch(self.database, declared)

    def fire_schedules(self, holder: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Fired:
        """Fire what is due. The lease is for jobs whose task and schedule name none."""
        fired = firing.fire_schedules(self.database, holder, lease_seconds)
        if any(tick.outcome == Outcome.FIRED for tick in fired.ticks):
            self._claimable()
        return fired

    # transports

    def offers(self, queue: str, limit: int) -> list[Offer]:
        """What may be offered in messages, in the order of a claim."""
        return offers.offers(self.database, queue, limit)

    def offers_of(self, job_ids: Sequence[str]) -> dict[str, Offer]:
        return offers.offers_of(self.database, job_ids)

    def offered_queues(self) -> list[str]:
        """Those that have something to claim, now or later."""
        return offers.offered_queues(self.database)

    # operators

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return operating.cancel(self.database, job_ids)

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        answers = operating.requeue(self.database, job_ids)
        if claimable_now.by_operator(answers):
            self._claimable()
        return answers

    def replay(self, job_id: str, new_id: str | None = None) -> Enqueued:
        answer = replaying.replay(self.database, job_id, new_id)
        if answer.created:
            self._claimable()
        return answer

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

    # upkeep

    def take_turn(self, name: str, holder: str, period: float) -> bool:
        """One winner per period, by the store's clock, however many ask."""
        return duties.take_turn(self.database, name, holder, period)

    def keep_turn(self, name: str, holder: str) -> bool:
        """Renew a turn while working; False when somebody else has it now."""
        return duties.keep_turn(self.database, name, holder)

    def turns(self) -> list[Turn]:
        return duties.turns(self.database)

    def retention_rules(self) -> Rules:
        return retaining.rules(self.database)

    def set_retention(self, what: str, queue: str, state: str, keep_seconds: float | None) -> None:
        retaining.set_rule(self.database, what, queue, state, keep_seconds)

    def unset_retention(self, what: str, queue: str, state: str) -> bool:
        return retaining.unset_rule(self.database, what, queue, state)

    def retention_due(self, what: Kept) -> list[Group]:
        return retaining.due(self.database, what)

    def retention_preview(self, most: int = retaining.COUNTED) -> list[Preview]:
        return retaining.preview(self.database, most)

    def prune(self, group: Group, limit: int) -> Pruned:
        return retaining.prune(self.database, group, limit)

    def retire(self, group: Group, limit: int) -> Retired:
        return retaining.retire(self.database, group, limit)

    def forget_ticks(self, keep_seconds: float, limit: int) -> int:
        return retaining.forget_ticks(self.database, keep_seconds, limit)

    def forget_refusals(self, keep_seconds: float, after: str | None, limit: int) -> tuple[int, str | None]:
        return retaining.forget_refusals(self.database, keep_seconds, after, limit)

    def histories_retired(self) -> Watermark | None:
        return retaining.watermark(self.database)

    def checkpoint(self) -> bool:
        return self.database.checkpoint()

    # dead letters

    def dead(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 50, after: str | None = None
    ) -> Page[Job]:
        return dead.dead(self.database, task, queue, limit, after)

    def dead_ids(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        older_than: float | None = None,
        limit: int = 500,
        after: str | None = None,
    ) -> list[str]:
        return dead.dead_ids(self.database, task, queue, older_than, limit, after)

    def dead_groups(
        self, *, task: str | None = None, queue: str | None = None, older_than: float | None = None
    ) -> list[DeadGroup]:
        return dead.dead_groups(self.database, task, queue, older_than)

    def purge(self, job_ids: Sequence[str], older_than: float = 0.0) -> Pruned:
        """Delete failed jobs; their histories stay, and end in `pruned`."""
        return retaining.purge(self.database, job_ids, State.FAILED, older_than)

    def add_schedule(self, schedule: Declaration) -> Schedule:
        return scheduling.add(self.database, schedule)

    def set_schedule(self, name: str, **changes: Any) -> Schedule:
        """Change what is named, over what code declares, until `reset_schedule`."""
        return scheduling.change(self.database, name, changes)

    def reset_schedule(self, name: str) -> Schedule:
        return scheduling.reset(self.database, name)

    def pause_schedule(self, name: str) -> Schedule:
        return scheduling.pause(self.database, name)

    def resume_schedule(self, name: str) -> Schedule:
        return scheduling.resume(self.database, name)

    def remove_schedule(self, name: str) -> bool:
        """Answers whether code had declared it: then the next worker that starts brings it back."""
        return scheduling.remove(self.database, name)

    def run_schedule_now(self, name: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Enqueued:
        answer = scheduling.run_now(self.database, name, lease_seconds)
        if answer.created:
            self._claimable()
        return answer

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

    def stuck(self, limit: int = 50, queues: Sequence[str] | None = None) -> list[Stuck]:
        """What ought to move and does not, with the reason: a group of jobs by its oldest one."""
        return stuck(self.database, limit, queues)

    def announced(self, name: str) -> TaskInfo | None:
        return announcing.announced(self.database, name)

    def announced_tasks(self) -> list[TaskInfo]:
        return announcing.announced_tasks(self.database)

    def schedules(self) -> list[Schedule]:
        """Those whose rows can be read; `unreadable_schedules` has the others."""
        return scheduling.schedules(self.database)

    def unreadable_schedules(self) -> list[ScheduleFailure]:
        return scheduling.unreadable(self.database)

    def schedule(self, name: str) -> Schedule:
        return scheduling.schedule(self.database, name)

    def ticks(self, name: str, limit: int = 50) -> list[Tick]:
        """The newest first."""
        return scheduling.ticks(self.database, name, limit)

    def workers(self) -> list[WorkerView]:
        return worker_rows.workers(self.database)

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]:
        """In the order they were said; `after` is the attempt and number of the last line already read."""
        return log_lines.logs(self.database, job_id, attempt, after, limit)

    # queries from far away

    def listed(
        self,
        *,
        states: Sequence[State] = (),
        queues: Sequence[str] | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Listed]:
        return listing.listed(self.database, states, queues, task, limit, after)

    def queue_of(self, job_id: str) -> str | None:
        """None when there is no such job."""
        return listing.queue_of(self.database, job_id)

    def queue_settings(self, name: str) -> QueueSettings:
        return listing.queue_settings(self.database, name)

    def refusals_in(self, queues: Sequence[str]) -> list[Refusal]:
        return listing.refusals_in(self.database, queues)

    def state_counts(self, queues: Sequence[str] | None = None) -> list[StateCount]:
        return listing.state_counts(self.database, queues)

    def history(self, job_id: str, after: int = 0, limit: int = 1000) -> Page[AuditEvent]:
        return feed.history(self.database, job_id, after, limit)

    def feed(self, after: FeedPlace | None, limit: int = 1000) -> FeedPage:
        return feed.feed(self.database, after, limit)

    # files

    def store_id(self) -> str:
        """What this database is called where files of several databases are kept."""
        return artifacts.store_id(self.database)

    def artifacts(self, job_id: str) -> list[Artifact]:
        """The files on record, attempt by attempt."""
        return artifacts.of_job(self.database, job_id)

    def live_artifacts(self, job_ids: Sequence[str]) -> LiveArtifacts:
        return artifacts.live(self.database, job_ids)

    def count_logs(self, job_id: str) -> int:
        return log_lines.count_logs(self.database, job_id)

    # who may speak to a control plane

    def create_token(self, new: NewToken) -> Issued:
        """Its text is nowhere afterwards but in this answer."""
        return tokens.create(self.database, new)

    def rotate_token(self, name: str) -> Issued:
        return tokens.rotate(self.database, name)

    def revoke_token(self, name: str) -> Token:
        return tokens.revoke(self.database, name)

    def tokens(self) -> list[Token]:
        """The live ones first; revoked ones stay on record."""
        return tokens.tokens(self.database)

    def any_live_token(self) -> bool:
        return tokens.any_live(self.database)

    def standings(self, ids: Sequence[str]) -> dict[str, Standing]:
        return tokens.standings(self.database, ids)

    def lease_reasons(self, shown: Sequence[Beat]) -> list[Reason | None]:
        """Whether each of these leases was ever given to whoever shows it, also where it is over: None, or why not."""
        return proving.lease_reasons(self.database, shown)

    def keep_worker_of(self, credential: str, row: WorkerRow) -> bool:
        """The row of a worker that has this credential; False when the id is another's."""
        return worker_rows.keep_worker_of(self.database, credential, row)

    def touch_tokens(self, ids: Sequence[str]) -> None:
        tokens.touch(self.database, ids)

    def create_admin_link(self, seconds: float) -> Issued:
        return tokens.create_link(self.database, seconds)

    def use_admin_link(self, code: str) -> Issued | None:
        return tokens.use_link(self.database, code)

    def record_access_refusals(self, attempts: Sequence[Attempted], most: int = MOST_REFUSALS) -> None:
        """`most` rows are kept; what is new beyond them is counted under one address for all."""
        tokens.record_refusals(self.database, attempts, most)

    def access_refusals(self, limit: int = 1000) -> list[AccessRefusal]:
        """The latest first."""
        return tokens.refusals(self.database, limit)

    def forget_access_refusals(self, keep_seconds: float) -> None:
        tokens.forget_refusals(self.database, keep_seconds)

    def counts(self) -> dict[str, int]:
        return querying.counts(self.database)
