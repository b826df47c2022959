"""A store whose jobs also travel in messages. Every verb is the inner store's; some of them do more after its commit:

enqueue, requeue, replay, firing, giving back    publish what can be claimed at once
settle                                           acknowledge the message that the claim came with
claim                                            by messages; while Redis is away, by the database alone

Publishing and acknowledging happen in another thread: no verb waits for Redis but a claim, and that for the time limit
of one answer. What goes wrong with a message after a commit is nobody's error: the sweeper puts it right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.domain.answers import Operated, OperatorAnswer, Reaped, Reason, Settled, Status
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import (
    DEFAULT_HEARTBEAT_SECONDS,
    DEFAULT_LEASE_SECONDS,
    Claimed,
    ClaimedJobs,
    Enqueued,
    NewJob,
)
from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.outcome import Report
from holdfast.domain.schedule import Fired, Outcome
from holdfast.ports import OfferStore
from holdfast.transports.redis_streams.claiming import MOST_AT_ONCE, Asked, MessageClaims
from holdfast.transports.redis_streams.link import RedisAway, RedisRefused
from holdfast.transports.redis_streams.looks import Looks, asker
from holdfast.transports.redis_streams.messages import is_message_id
from holdfast.transports.redis_streams.transport import Transport

# For the type checker this is the whole port, so that what is overridden here keeps its signature.
if TYPE_CHECKING:
    Inherited = OfferStore
else:
    Inherited = object

_OVER = (Reason.LEASE_LOST, Reason.CONFLICTING_REPORT)


class StreamStore(Inherited):
    """`look_seconds`: how often a claim that found no message looks into the database; 0 is always."""

    def __init__(
        self,
        store: OfferStore,
        transport: Transport,
        look_seconds: float = 0.0,
        before_close: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._transport = transport
        self._claims = MessageClaims(store, transport)
        self._looks = Looks(look_seconds)
        self._before_close = before_close

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def close(self) -> None:
        if self._before_close is not None:
            self._before_close()
        self._store.close()

    # clients

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        return self.enqueue_many([job], connection)[0]

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        jobs = list(jobs)  # each is looked at again
        answers = self._store.enqueue_many(jobs, connection)
        if connection is None:  # else nobody knows yet whether it will be committed
            now = datetime.now(UTC)
            self._transport.publisher.offer(
                (job.queue, answer.id, 1)
                for job, answer in zip(jobs, answers, strict=True)
                if answer.created and _is_due(job, now)
            )
        return answers

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
    ) -> ClaimedJobs:
        asked = Asked(worker, limit, queues, tasks, credential, request_id)
        try:
            found = self._claim_by_messages(asked)
        except (RedisAway, RedisRefused):
            return self._claim_by_database(asked)
        who = asker(queues, tasks)
        if found or not self._looks.take_turn(who):
            return ClaimedJobs(found)
        jobs = self._claim_by_database(asked)
        if jobs:
            self._looks.found_some(who)
        elif jobs.again_in is not None:
            self._looks.look_in(who, jobs.again_in)
        return jobs

    def _claim_by_messages(self, asked: Asked) -> list[Claimed]:
        if not _is_sound(asked):  # the database says what is wrong with it
            raise RedisAway
        if asked.request_id is not None:
            before = self._store.claim_again(asked.credential, asked.request_id)
            if before is not None:
                return before
        return self._claims.claim(asked)

    def _claim_by_database(self, asked: Asked) -> ClaimedJobs:
        return self._store.claim(
            asked.worker,
            asked.limit,
            asked.queues,
            asked.tasks,
            credential=asked.credential,
            request_id=asked.request_id,
        )

    def settle(self, reports: Sequence[Report]) -> list[Settled]:
        answers = self._store.settle(reports)
        over = [
            report
            for report, answer in zip(reports, answers, strict=True)
            if report.message_id is not None and (answer.ok or answer.reason in _OVER)
        ]
        with suppress(HoldfastError):  # the outcomes are committed
            self._acknowledge(over)
        self._publish(answer.job_id for answer in answers if _given_back(answer))
        return answers

    def reap(
        self,
        holder: str,
        *,
        period: float = 10.0,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
    ) -> Reaped:
        reaped = self._store.reap(
            holder, period=period, lease_seconds=lease_seconds, heartbeat_seconds=heartbeat_seconds
        )
        self._publish(answer.job_id for answer in reaped.settled if _given_back(answer))
        return reaped

    def fire_schedules(self, holder: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Fired:
        fired = self._store.fire_schedules(holder, lease_seconds=lease_seconds)
        self._publish(tick.job_id for tick in fired.ticks if tick.outcome == Outcome.FIRED and tick.job_id is not None)
        return fired

    # operators

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        answers = self._store.requeue(job_ids)
        self._publish(answer.job_id for answer in answers if answer.did is Operated.REQUEUED)
        return answers

    def replay(self, job_id: str, new_id: str | None = None) -> Enqueued:
        answer = self._store.replay(job_id, new_id)
        if answer.created:
            self._publish([answer.id])
        return answer

    def run_schedule_now(self, name: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Enqueued:
        answer = self._store.run_schedule_now(name, lease_seconds=lease_seconds)
        if answer.created:
            self._publish([answer.id])
        return answer

    # messages

    def _publish(self, job_ids: Iterable[str]) -> None:
        """Of these jobs what can be claimed now."""
        ids = list(job_ids)
        if not ids:
            return
        with suppress(HoldfastError):  # what they are about is committed
            offers = self._store.offers_of(ids).values()
            self._transport.publisher.offer(
                (offer.queue, offer.job_id, offer.seq) for offer in offers if offer.claimable
            )

    def _acknowledge(self, reports: Iterable[Report]) -> None:
        messages = {report.job_id: report.message_id for report in reports if is_message_id(report.message_id or "")}
        queues = {job_id: self._transport.origins.take(job_id) for job_id in messages}
        unknown = [job_id for job_id, queue in queues.items() if queue is None]
        if unknown:  # claimed by another process
            queues |= {job_id: offer.queue for job_id, offer in self._store.offers_of(unknown).items()}
        self._transport.publisher.acknowledge(
            (queue, messages[job_id] or "", job_id) for job_id, queue in queues.items() if queue is not None
        )


def _is_due(job: NewJob, now: datetime) -> bool:
    return not job.delay and (job.run_after is None or job.run_after <= now)


def _given_back(answer: Settled) -> bool:
    return answer.status is Status.APPLIED and answer.state in CLAIMABLE


def _is_sound(asked: Asked) -> bool:
    try:
        check_name(asked.worker, "worker")
        check_integer(asked.limit, "limit", 1, MOST_AT_ONCE)
        for names in (asked.queues, asked.tasks):
            if isinstance(names, str):
                return False
            for name in names or ():
                check_name(name, "name")
    except HoldfastError:
        return False
    return True
