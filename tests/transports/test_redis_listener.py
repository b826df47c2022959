"""Who waits for work hears of new messages, also after its connection was cut; and how Redis is left alone."""

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams import listener as redis_listener
from holdfast.transports.redis_streams.breaker import LONGEST_PAUSE_SECONDS, Breaker
from holdfast.transports.redis_streams.listener import StreamListener
from holdfast.transports.redis_streams.looks import Looks, asker
from holdfast.transports.redis_streams.options import Names, StreamOptions
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


def test_a_listener_that_hears_nothing_asks_for_answers_and_goes_on(
    options: StreamOptions, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung = Rung()
    listener = StreamListener(
        options, rung, changed=rung.statuses.append, probe_every=0.01, probe_within=DEADLINE_SECONDS
    )
    answers: list[str | None] = []
    hear_until = listener._hear_until

    def noting(ear: Any, deadline: float, answer: str | None = None) -> bool:
        found = hear_until(ear, deadline, answer)
        answers.append(answer)
        return found

    def connection() -> str:
        [own] = [found["id"] for found in client.client_list(_type="pubsub") if found["name"] == options.prefix]
        return str(own)

    monkeypatch.setattr(listener, "_hear_until", noting)
    listener.start()
    try:
        rung.wait()
        first = connection()
        wait_until(lambda: answers.count("pong") >= 3, what="it has asked several times")
        client.publish(Names(options.prefix).wake, "")
        rung.wait()
        assert (connection(), rung.statuses) == (first, ["listening"])
        assert answers[:5] == ["subscribe", None, "pong", None, "pong"]
    finally:
        listener.close()


class SilentEar:
    """A connection that gets no answer to a question."""

    def __init__(self) -> None:
        self.closing = 0
        self.asked = 0

    def subscribe(self, _channel: str) -> None:
        pass

    def ping(self) -> None:
        self.asked += 1

    def get_message(self, timeout: float) -> dict[str, str] | None:  # noqa: ARG002
        return None if self.asked else {"type": "subscribe"}

    def pubsub(self) -> "SilentEar":
        return self

    def close(self) -> None:
        self.closing += 1


def test_a_listener_that_gets_no_answer_is_degraded_and_connects_anew(
    options: StreamOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ears: list[SilentEar] = []

    def connect(*_given: Any) -> SilentEar:
        ears.append(SilentEar())
        return ears[-1]

    rung = Rung()
    monkeypatch.setattr(redis_listener, "connect", connect)
    listener = StreamListener(
        options, rung, changed=rung.statuses.append, probe_every=0.0, probe_within=0.0, longest_backoff=0.0
    )
    monkeypatch.setattr(listener, "_hear_until", partial(hear_at_first, listener._hear_until))
    listener.start()
    wait_until(lambda: len(ears) > 2, what="it has connected anew")
    listener.close()
    assert rung.statuses[:4] == ["listening", "degraded", "listening", "degraded"]
    assert [(ear.asked, ear.closing) for ear in ears[:2]] == [(1, 2), (1, 2)], "each is asked once, and then closed"


def hear_at_first(hear: Callable[..., bool], ear: SilentEar, deadline: float, answer: str | None = None) -> bool:
    """There is time for the answer to the subscription, and none for others."""
    return True if answer == "subscribe" else hear(ear, deadline, answer)


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
