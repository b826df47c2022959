"""RQ's queues in Redis, filled with messages that each name one job of ours.

An RQ queue has the name of the Holdfast queue. A message says `holdfast.rq.execute_run(job_id)`, and of which task and
version the job is, so that a worker that lacks the task can tell at once. Everything that RQ could decide is switched
off:

id            of the job and its version, so that one that is still queued is not queued again
timeout -1    time limits are Holdfast's
no retry      so are retries
result 0 s    RQ keeps no result, and no trace of a message that was handled
queued 600 s  a message that an RQ worker took and died with is forgotten, and the job can be offered again. RQ makes a
              message permanent when its function begins; while the job can still be claimed, it expires all the same

A queue of RQ is never filled beyond a window, however long the backlog is: what has no message gets one from the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redis import ConnectionError, Redis, ResponseError
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue
from rq.job import Job
from rq.queue import EnqueueData

from holdfast.domain.offers import Offer
from holdfast.transports.redis_replica import closed_as_replica
from holdfast.transports.rq_refusals import refused_key

FUNCTION = "holdfast.rq.execute_run"
WINDOW = 500
QUEUED_SECONDS = 600
FAILED_SECONDS = 60
PERMANENT, MISSING = -1, -2  # as answers of TTL


class RqQueues:
    """Thread-safe. Every wait for Redis is bounded by `timeout`, and nothing is tried twice."""

    def __init__(self, url: str, serializer: str = "pickle", *, timeout: float, window: int = WINDOW) -> None:
        self._serializer = serializer
        self.window = window
        self._redis = Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )

    def close(self) -> None:
        self._redis.close()

    def room(self, queue: str) -> int:
        """How many more messages fit there."""
        return max(0, self.window - self._queue(queue).count)

    def push(self, offers: Iterable[Offer]) -> int:
        """Put a message for each into its queue, unless it has one, was refused lately for want of its task, or the
        queue is full; how many that were."""
        by_queue: dict[str, list[Offer]] = {}
        for offer in offers:
            by_queue.setdefault(offer.queue, []).append(offer)
        try:
            return sum(self._push(self._queue(name), offered) for name, offered in by_queue.items())
        except ResponseError as error:
            if closed_as_replica(self._redis, error):
                raise ConnectionError(str(error)) from error
            raise

    def _queue(self, name: str) -> Queue:
        return Queue(name, connection=self._redis, serializer=self._serializer)

    def _push(self, queue: Queue, offers: Sequence[Offer]) -> int:
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.llen(queue.key)
            for offer in offers:
                pipeline.ttl(Job.key_for(_message_id(offer)))
                pipeline.exists(refused_key(offer.job_id, offer.seq))
            length, *known = pipeline.execute()
            found = list(zip(offers, known[::2], known[1::2], strict=True))
            for offer in (offer for offer, ttl, _ in found if ttl == PERMANENT):
                pipeline.expire(Job.key_for(_message_id(offer)), QUEUED_SECONDS)
            pipeline.execute()
        unknown = [offer for offer, ttl, is_refused in found if ttl == MISSING and not is_refused]
        pushed = unknown[: max(0, self.window - length)]
        if pushed:
            queue.enqueue_many([_message(offer) for offer in pushed])
        return len(pushed)


def _message_id(offer: Offer) -> str:
    return f"holdfast-{offer.job_id}-{offer.seq}"


def _message(offer: Offer) -> EnqueueData:
    return Queue.prepare_data(
        FUNCTION,
        args=(offer.job_id,),
        timeout=-1,
        result_ttl=0,
        ttl=QUEUED_SECONDS,
        failure_ttl=FAILED_SECONDS,
        description=f"holdfast job {offer.job_id}",
        meta={"task": offer.task, "seq": offer.seq},
        job_id=_message_id(offer),
    )
