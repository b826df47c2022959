"""Faults of Redis and of the messages in it: flushed, frozen, restarted; doubled, out of order, dropped."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from redis import Redis, RedisError

from holdfast.torture import tasks
from holdfast.torture.crew import REDIS, RQ
from holdfast.torture.faults.kind import Struck
from holdfast.torture.redis_traffic import RqTraffic, StreamTraffic
from holdfast.torture.stage import Stage

DOORS = (REDIS, RQ)
RQ_DATABASE, STREAMS = 0, 1
AGAIN = 25  # messages that are delivered once more
LOOK_SECONDS = 0.05


def redis_flushed(stage: Stage, chance: random.Random) -> Struck:  # noqa: ARG001
    with _client(stage, STREAMS) as client:
        keys = sum(int(found["keys"]) for found in client.info("keyspace").values())
        client.flushall()
    return Struck("Redis", f"{keys} keys", DOORS)


def redis_frozen(stage: Stage, chance: random.Random) -> Struck:
    assert stage.valkey is not None
    seconds = chance.uniform(0.5, 2.0) * stage.lease_seconds
    os.kill(stage.valkey.pid, signal.SIGSTOP)
    try:
        stage.rest(seconds)
    finally:
        os.kill(stage.valkey.pid, signal.SIGCONT)
    return Struck("Redis", f"{seconds:.1f} s", DOORS)


def redis_restarted(stage: Stage, chance: random.Random) -> Struck:
    """Empty: it keeps nothing."""
    assert stage.valkey is not None
    seconds = chance.uniform(0.0, 1.0) * stage.lease_seconds
    with stage.server:
        stage.valkey.stop()
        stage.rest(seconds)
        stage.valkey.start()
    return Struck("Redis", f"away for {seconds:.1f} s, and empty", DOORS)


def end_idle_clients(stage: Stage) -> int:
    """Close the connections that have no command under way; how many they were. Subscribers are idle for good."""
    with suppress(RedisError), _client(stage, STREAMS) as client:
        idle = [found["id"] for found in client.client_list(_type="normal") if int(found["idle"]) >= 1]
        return sum(int(client.client_kill_filter(_id=number)) for number in idle)
    return 0


def doubled(stage: Stage, chance: random.Random) -> Struck:
    return _meddle(stage, chance, lambda streams, rq: streams.duplicate(AGAIN) + rq.duplicate(AGAIN))


def shuffled(stage: Stage, chance: random.Random) -> Struck:
    return _meddle(stage, chance, lambda streams, rq: streams.shuffle() + rq.shuffle())


def dropped(stage: Stage, chance: random.Random) -> Struck:
    def drop(streams: StreamTraffic, rq: RqTraffic) -> int:
        share = chance.choice((0.5, 1.0))
        return streams.drop(share) + rq.drop(share) + streams.destroy_groups()

    return _meddle(stage, chance, drop)


def _meddle(stage: Stage, chance: random.Random, act: Callable[[StreamTraffic, RqTraffic], int]) -> Struck:
    """Again and again for a while: messages are few where workers are quick."""
    queues, hits = tasks.QUEUES, 0
    with _client(stage, STREAMS) as streams, _client(stage, RQ_DATABASE) as rq:
        traffic = StreamTraffic(streams, queues, seed=chance.getrandbits(32)), RqTraffic(rq, queues)
        for _ in range(int(stage.lease_seconds / LOOK_SECONDS)):
            with suppress(RedisError):  # a worker took a message away in between, or Redis is away itself
                hits += act(*traffic)
            if stage.stop.is_set():
                break
            stage.rest(LOOK_SECONDS)
    return Struck("messages", f"{hits} of them", DOORS, hits=hits)


@contextmanager
def _client(stage: Stage, database: int) -> Iterator[Redis]:
    """Past every proxy."""
    assert stage.valkey is not None
    with Redis(host="127.0.0.1", port=stage.valkey.port, db=database, socket_timeout=5.0) as client:
        yield client
