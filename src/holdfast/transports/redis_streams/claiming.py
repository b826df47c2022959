"""Claims by messages: read some, claim the jobs that they name, and let go of every message that won nothing.

A message is a hint. What is claimed, and by whom, is decided in the database, in one transaction for the whole batch.
The winner's message stays in its hands until the outcome is committed. The others go at once: their jobs are over, held
by somebody else or not due, and whatever becomes due again is offered again.

A job of a task that was not asked for is put back for somebody who does ask, in silence: an announcement would wake the
same asker, who would put it back again. Which task it is of is remembered, so that the store is asked about it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Claimed
from holdfast.ports import OfferStore
from holdfast.transports.redis_streams.disposal import Disposal, why_dead
from holdfast.transports.redis_streams.link import RedisAway, RedisRefused
from holdfast.transports.redis_streams.messages import Message
from holdfast.transports.redis_streams.transport import Transport

MOST_AT_ONCE = 500
# A stream may be full of messages whose jobs were done by other ways: so many batches are looked through in one claim.
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Asked:
    worker: str
    limit: int
    queues: Sequence[str] | None
    tasks: Sequence[str] | None
    credential: str
    request_id: str | None


class MessageClaims:
    def __init__(self, store: OfferStore, transport: Transport) -> None:
        self._store = store
        self._transport = transport
        self._streams = transport.streams

    def claim(self, asked: Asked) -> list[Claimed]:
        """Raises `RedisAway` only when nothing was claimed."""
        passed: set[str | None] = set()
        for _ in range(ROUNDS):
            messages = self._streams.take(asked.worker, asked.queues, min(asked.limit, MOST_AT_ONCE))
            if not messages:
                return []
            foreign = self._foreign(asked, messages)
            if foreign:
                self._put_back(foreign)
            if found := self._claim(asked, [message for message in messages if message not in foreign]):
                return found
            met = {message.job_id for message in self._foreign(asked, messages)}
            if passed & met:  # once round the stream
                return []
            passed |= met
        return []

    def _foreign(self, asked: Asked, messages: list[Message]) -> set[Message]:
        """Those that are known to be about tasks that were not asked for."""
        if asked.tasks is None:
            return set()
        tasks = ((message, self._transport.tasks.get(message.job_id or "")) for message in messages)
        return {message for message, task in tasks if task is not None and task not in asked.tasks}

    def _put_back(self, messages: Iterable[Message]) -> None:
        with suppress(RedisAway, RedisRefused):
            Disposal(put_back=list(messages)).carry_out(self._streams)

    def _claim(self, asked: Asked, messages: list[Message]) -> list[Claimed]:
        by_job: dict[str, Message] = {}
        for message in messages:
            if message.job_id is not None:
                by_job.setdefault(message.job_id, message)
        try:
            claimed = self._claim_jobs(asked, by_job) if by_job else []
        except Exception:  # also an error of the driver: without this the messages wait to be taken over
            self._put_back(messages)
            raise
        won = {by_job[job.job_id] for job in claimed if job.job_id in by_job}
        for message in won:
            self._transport.origins.note(message.job_id or "", message.queue)
        lost = [message for message in messages if message not in won]
        if lost:
            # What cannot be looked up or sent now stays in our hands, until it is taken over.
            with suppress(HoldfastError, RedisAway, RedisRefused):
                self._judged(asked, lost).carry_out(self._streams)
        return claimed

    def _claim_jobs(self, asked: Asked, by_job: dict[str, Message]) -> list[Claimed]:
        return self._store.claim_jobs(
            asked.worker,
            list(by_job),
            credential=asked.credential,
            request_id=asked.request_id,
            messages={job_id: message.id for job_id, message in by_job.items()},
            queues=asked.queues,
            tasks=asked.tasks,
        )

    def _judged(self, asked: Asked, lost: list[Message]) -> Disposal:
        offers = self._store.offers_of([message.job_id for message in lost if message.job_id is not None])
        disposal = Disposal()
        for message in lost:
            reason = why_dead(message, offers)
            if reason is not None:
                disposal.bury.append((message, reason))
                continue
            offer = offers[message.job_id or ""]
            if offer.claimable and asked.tasks is not None and offer.task not in asked.tasks:
                self._transport.tasks.note(offer.job_id, offer.task)
                disposal.put_back.append(message)
            else:
                disposal.drop.append(message)
        return disposal
