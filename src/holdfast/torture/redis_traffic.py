"""Messages that come twice, in another order, or never: done to the messages themselves, in a real Redis.

Whoever meddles races with workers that take messages at the same time, which is as it should be: a message that was
taken in between comes twice. Each method returns how many messages (groups, for `destroy_groups`) it hit.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.transports.redis_streams.options import DEFAULT_PREFIX, GROUP, Names

if TYPE_CHECKING:
    from redis import Redis

AGAIN = "-again-"  # in the id of a copy
AT_MOST = 10_000  # messages of a queue that are looked at

T = TypeVar("T")
StreamMessage = tuple[str, bytes, dict[bytes, bytes]]  # its stream, id and fields
RqMessage = tuple[str, str]  # its queue and id


class StreamTraffic:
    """The streams of these queues, or of all queues that have had a message. Those in somebody's hands are hit, too."""

    def __init__(
        self,
        redis: Redis,
        queues: Sequence[str] | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        seed: int | None = None,
    ) -> None:
        self._redis: Any = redis  # its annotations know no difference between now and later
        self._names = Names(prefix)
        self._queues = queues
        self._chosen = random.Random(seed)

    def duplicate(self, count: int) -> int:
        found = _some(self._messages(), count, self._chosen)
        self._add(found)
        return len(found)

    def shuffle(self) -> int:
        """Take all of them out, and put them back in another order."""
        found = self._messages()
        self._chosen.shuffle(found)
        with self._redis.pipeline() as pipeline:
            for stream, message_id, fields in found:
                pipeline.xdel(stream, message_id)
                pipeline.xadd(stream, fields)
            pipeline.execute()
        self._announce()
        return len(found)

    def drop(self, share: float = 0.5) -> int:
        """About this share of them; 1 is all."""
        found = [message for message in self._messages() if self._chosen.random() < share]
        with self._redis.pipeline() as pipeline:
            for stream, message_id, _fields in found:
                pipeline.xdel(stream, message_id)
            return sum(pipeline.execute())

    def destroy_groups(self) -> int:
        """And with them who holds which message, and up to where messages were read."""
        return sum(self._redis.xgroup_destroy(stream, GROUP) for stream in self._streams() if self._is_there(stream))

    def _add(self, messages: list[StreamMessage]) -> None:
        with self._redis.pipeline() as pipeline:
            for stream, _message_id, fields in messages:
                pipeline.xadd(stream, fields)
            pipeline.execute()
        self._announce()

    def _announce(self) -> None:
        self._redis.publish(self._names.wake, "")

    def _messages(self) -> list[StreamMessage]:
        return [
            (stream, message_id, fields)
            for stream in self._streams()
            for message_id, fields in self._redis.xrange(stream, count=AT_MOST)
        ]

    def _streams(self) -> list[str]:
        queues = self._queues
        if queues is None:
            queues = sorted(name.decode() for name in self._redis.smembers(self._names.queues))
        return [self._names.stream(queue) for queue in queues]

    def _is_there(self, stream: str) -> bool:
        return bool(self._redis.exists(stream))


class RqTraffic:
    """RQ's queues of these names. Messages are copied as they are: what is in them is nobody's business here."""

    def __init__(self, redis: Redis, queues: Sequence[str], *, seed: int | None = None) -> None:
        self._redis: Any = redis
        self._queues = queues
        self._chosen = random.Random(seed)

    def duplicate(self, count: int) -> int:
        """Under another id of RQ's, or the first to be done would take the other with it."""
        found = _some(self._messages(), count, self._chosen)
        with self._redis.pipeline() as pipeline:
            for queue, message_id in found:
                copy = f"{message_id.partition(AGAIN)[0]}{AGAIN}{secrets.token_hex(4)}"
                pipeline.copy(_job_key(message_id), _job_key(copy))
                pipeline.rpush(_queue_key(queue), copy)
            return sum(pipeline.execute()[::2])

    def shuffle(self) -> int:
        found = self._messages()
        self._chosen.shuffle(found)
        with self._redis.pipeline() as pipeline:
            for queue, message_id in found:
                pipeline.lrem(_queue_key(queue), 1, message_id)
                pipeline.rpush(_queue_key(queue), message_id)
            pipeline.execute()
        return len(found)

    def drop(self, share: float = 0.5) -> int:
        """About this share of them, with everything that RQ knows about them: as if they had never come."""
        found = [message for message in self._messages() if self._chosen.random() < share]
        with self._redis.pipeline() as pipeline:
            for queue, message_id in found:
                pipeline.lrem(_queue_key(queue), 0, message_id)
                pipeline.delete(_job_key(message_id))
            return sum(min(1, removed) for removed in pipeline.execute()[::2])

    def _messages(self) -> list[RqMessage]:
        lists = ([(queue, found) for found in self._ids(queue)] for queue in self._queues)
        return list(chain.from_iterable(lists))

    def _ids(self, queue: str) -> list[str]:
        return [found.decode() for found in self._redis.lrange(_queue_key(queue), 0, AT_MOST - 1)]


def _queue_key(name: str) -> str:
    from rq import Queue  # here and below: whoever has no RQ has streams all the same

    return Queue.redis_queue_namespace_prefix + name


def _job_key(message_id: str) -> str:
    from rq.job import Job

    return str(Job.key_for(message_id))


def _some(found: list[T], count: int, chosen: random.Random) -> list[T]:
    return chosen.sample(found, min(count, len(found)))
