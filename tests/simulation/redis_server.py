"""A Redis in memory: streams with one group each, sets, and the few scripts that product code sends, as atomic steps.

It stands in for the connection only; `Streams`, the publisher, the claims by messages and the sweeper are the real
ones. What the scripts do in Lua is tested on a real server by `tests/transports`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ConnectionError as Unreachable

from holdfast.transports.redis_streams import streams
from tests.simulation import weather
from tests.simulation.machine import Machine
from tests.simulation.weather import Weather

ANSWER_SECONDS = 0.003

Fields = tuple[bytes, ...]


@dataclass
class Stream:
    """`pending` has the messages in somebody's hands: who, and since when. None: the group is not there."""

    entries: dict[str, Fields] = field(default_factory=dict)
    pending: dict[str, tuple[str, float]] | None = None
    delivered: tuple[int, int] = (0, 0)
    heard: dict[str, float] = field(default_factory=dict)


def _moment(message_id: str) -> tuple[int, int]:
    first, second = message_id.split("-")
    return int(first), int(second)


class Redis:
    def __init__(self, machine: Machine, plan: Weather) -> None:
        self.machine = machine
        self.world = machine.world
        self.plan = plan
        self.is_calm = False
        self.streams: dict[str, Stream] = {}
        self.sets: dict[str, set[bytes]] = {}
        self.dead: list[tuple[str, str]] = []
        self._last = (0, 0)
        self._steps: dict[str, Callable[[list[str], list[str]], Any]] = {
            streams.ADD.digest: self._add,
            streams.TAKE.digest: self._take,
            streams.DROP.digest: self._drop,
            streams.PUT_BACK.digest: self._put_back,
            streams.BURY.digest: self._bury,
            streams.LOOK.digest: self._look,
            streams.TIDY.digest: self._tidy,
        }

    def connection(self) -> Connection:
        return Connection(self)

    def flush(self) -> None:
        self.streams.clear()
        self.sets.clear()

    def script(self, digest: str, keys: list[str], arguments: list[str]) -> Any:
        return self._steps[digest](keys, arguments)

    # the scripts, as scripts/*.lua have them

    def _new_id(self) -> str:
        now = (int(self.machine.moment().timestamp() * 1000), 0)
        self._last = now if now > self._last else (self._last[0], self._last[1] + 1)
        return f"{self._last[0]}-{self._last[1]}"

    def _add(self, keys: list[str], arguments: list[str]) -> int:
        window, queue, _channel, only_new, *jobs = arguments
        stream = self.streams.setdefault(keys[0], Stream())
        named = {_job(fields) for fields in stream.entries.values()} if only_new == "new" else set()
        room = int(window) - len(stream.entries)
        wanted = [pair for pair in zip(jobs[::2], jobs[1::2], strict=True) if pair[0].encode() not in named]
        for job_id, number in wanted[: max(0, room)]:
            stream.entries[self._new_id()] = (b"job_id", job_id.encode(), b"enqueue_id", number.encode())
            self.sets.setdefault(keys[1], set()).add(queue.encode())
        return len(wanted[: max(0, room)])

    def _take(self, keys: list[str], arguments: list[str]) -> list[Any]:
        prefix, _group, consumer, limit, _seed, *names = arguments
        names = names or sorted(name.decode() for name in self.sets.get(keys[0], set()))
        found: list[Any] = []
        for name in names:
            stream = self.streams.get(prefix + name)
            if stream is None:
                continue
            pending = self._group(stream)
            for message_id, fields in list(stream.entries.items()):
                if len(found) < int(limit) and _moment(message_id) > stream.delivered:
                    stream.delivered = _moment(message_id)
                    pending[message_id] = (consumer, self.world.now)
                    stream.heard[consumer] = self.world.now
                    found.append((name.encode(), message_id.encode(), fields))
        return found

    def _group(self, stream: Stream) -> dict[str, tuple[str, float]]:
        if stream.pending is None:
            stream.pending, stream.delivered = {}, (0, 0)
        return stream.pending

    def _drop(self, keys: list[str], arguments: list[str]) -> int:
        stream = self.streams.get(keys[0], Stream())
        dropped = 0
        for message_id, job_id in zip(arguments[1::2], arguments[2::2], strict=True):
            fields = stream.entries.get(message_id)
            if fields is None or job_id in ("", _job(fields).decode()):
                dropped += stream.entries.pop(message_id, None) is not None
                (stream.pending or {}).pop(message_id, None)
        return dropped

    def _put_back(self, keys: list[str], arguments: list[str]) -> int:
        stream = self.streams.get(keys[0], Stream())
        back = 0
        for message_id in arguments[3:]:
            held = (stream.pending or {}).get(message_id)
            fresh = held is not None and (self.world.now - held[1]) * 1000 < int(arguments[1])
            if not fresh and message_id in stream.entries:
                fields = stream.entries.pop(message_id)
                (stream.pending or {}).pop(message_id, None)
                stream.entries[self._new_id()] = fields
                back += 1
        return back

    def _bury(self, keys: list[str], arguments: list[str]) -> None:
        stream = self.streams.get(keys[0], Stream())
        for message_id, reason in zip(arguments[3::3], arguments[4::3], strict=True):
            self.dead.append((message_id, reason))
            stream.entries.pop(message_id, None)
            (stream.pending or {}).pop(message_id, None)

    def _look(self, keys: list[str], arguments: list[str]) -> Any:
        stream = self.streams.get(keys[0])
        if stream is None:
            return [], [], b"0-0"
        most, pending = int(arguments[1]), self._group(stream)
        held = [
            (message_id.encode(), consumer.encode(), int((self.world.now - since) * 1000), 1)
            for message_id, (consumer, since) in sorted(pending.items(), key=lambda item: _moment(item[0]))
        ]
        entries = [(message_id.encode(), fields) for message_id, fields in stream.entries.items()]
        return entries[:most], held[:most], "{}-{}".format(*stream.delivered).encode()

    def _tidy(self, keys: list[str], arguments: list[str]) -> int:
        stream = self.streams.get(keys[0])
        if stream is None or stream.pending is None:
            return 0
        busy = {consumer for consumer, _since in stream.pending.values()}
        idle = [
            consumer
            for consumer, since in stream.heard.items()
            if consumer not in busy and (self.world.now - since) * 1000 >= int(arguments[1])
        ]
        for consumer in idle:
            del stream.heard[consumer]
        if not stream.heard and not stream.entries:
            del self.streams[keys[0]]
            self.sets.get(keys[1], set()).discard(arguments[2].encode())
        return len(idle)

    def deliver_twice(self) -> bool:
        """As after a failover, a message that was read is there again."""
        for name in sorted(self.streams):
            for fields in self.streams[name].entries.values():
                self.streams[name].entries[self._new_id()] = fields
                return True
        return False


def _job(fields: Fields) -> bytes:
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(b"job_id", b"")


class Connection:
    """One client's, with what goes wrong on the way."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def evalsha(self, digest: str, count: int, *given: Any) -> Any:
        words = [str(value) for value in given]
        return self._ask(lambda: self._redis.script(digest, words[:count], words[count:]))

    def smembers(self, key: str) -> set[bytes]:
        return set(self._ask(lambda: set(self._redis.sets.get(key, set()))))

    def srem(self, key: str, *members: bytes) -> None:
        self._ask(lambda: self._redis.sets.get(key, set()).difference_update(members))

    def close(self) -> None:
        """There is nothing to close."""

    def _ask(self, question: Callable[[], Any]) -> Any:
        redis, world = self._redis, self._redis.world
        world.sleep(world.random.random() * ANSWER_SECONDS)
        if not redis.is_calm and redis.plan.is_redis_away(world.now):
            world.fault(weather.REDIS_AWAY)
            raise Unreachable("simulated: Redis is away")
        answer = question()
        world.sleep(world.random.random() * ANSWER_SECONDS)
        if not redis.is_calm and world.random.random() < redis.plan.redis_failing:
            world.fault(weather.REDIS_REPLY_LOST)
            raise Unreachable("simulated: the reply was lost")
        return answer
