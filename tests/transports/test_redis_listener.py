"""Who waits for work hears of new messages, also after its connection was cut; and how Redis is left alone."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.breaker import LONGEST_PAUSE_SECONDS, Breaker
from holdfast.transports.redis_streams.looks import Looks, asker
from holdfast.transports.redis_streams.options import StreamOptions
from holdfast.wiring.redis import open_stream_wake_up, open_transport
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


class Rung:
    def __init__(self) -> None:
        self.times = 0
        self.statuses: list[str] = []
        self._again = threading.Event()

    def __call__(self) -> None:
        self.times += 1
        self._again.set()

    def wait(self) -> None:
        assert self._again.wait(DEADLINE_SECONDS)
        self._again.clear()


@pytest.fixture
def options(valkey_server: ValkeyEndpoint) -> StreamOptions:
    """The connections have a name, by which a test finds its own: the server is shared."""
    name = uuid.uuid4().hex
    url = f"{valkey_server.url}?client_name={name}"
    return StreamOptions(url=url, prefix=name, timeout_seconds=DEADLINE_SECONDS)


@pytest.fixture
def client(valkey_server: ValkeyEndpoint) -> Iterator[Any]:
    with redis.Redis.from_url(valkey_server.url) as client:
        yield client


def test_a_listener_rings_at_every_announcement_and_mends_itself(options: StreamOptions, client: Any) -> None:
    rung = Rung()
    listener = open_stream_wake_up(options, rung, rung.statuses.append)
    transport = open_transport(options)
    try:
        rung.wait()  # it has just begun to listen
        assert listener.status == "listening"
        transport.publisher.offer([("default", str(uuid.uuid4()), 1)])
        rung.wait()
        [own] = [found["id"] for found in client.client_list(_type="pubsub") if found["name"] == options.prefix]
        client.client_kill_filter(_id=own)
        rung.wait()  # it listens again
        assert rung.statuses == ["listening", "degraded", "listening"]
        wait_until(lambda: transport.streams.queues() == {"default"}, what="it is published")
    finally:
        listener.close()
        transport.close()
    assert listener.status == "off"


def test_after_a_failure_redis_is_left_alone_for_longer_and_longer_and_one_tries() -> None:
    now = 100.0
    breaker = Breaker(lambda: now)
    assert breaker.admits(1.0)
    pauses = []
    for _ in range(8):
        breaker.failed()
        assert not breaker.admits(1.0)
        pauses.append(breaker.seconds_left)
        now += breaker.seconds_left
        assert breaker.admits(1.0)
        assert not breaker.admits(1.0), "one tries, the others go without"
    assert 0.1 <= pauses[0] <= 0.25
    assert LONGEST_PAUSE_SECONDS / 2 <= pauses[-1] <= LONGEST_PAUSE_SECONDS
    breaker.worked()
    assert breaker.admits(1.0)
    assert breaker.admits(1.0)


def test_who_finds_nothing_in_the_database_looks_again_after_seconds_and_each_for_itself() -> None:
    now = 0.0
    looks = Looks(3.0, lambda: now)
    everything, some = asker(None, None), asker(["a"], ["add"])
    assert looks.take_turn(everything)
    assert looks.take_turn(some)
    assert not looks.take_turn(everything)
    looks.found_some(everything)
    assert looks.take_turn(everything), "there may be more"
    now = 3.0
    assert looks.take_turn(some)
    looks.look_in(some, 0.5)
    assert not looks.take_turn(some)
    now = 3.5
    assert looks.take_turn(some), "a source's token is there"
    looks.look_in(some, 60.0)
    now = 6.5
    assert looks.take_turn(some), "and never later than without it"
