"""Anybody can write to Redis: what is not ours there is passed over or removed, and keeps nothing else from working."""

import logging
import uuid
from collections.abc import Iterator

import pytest

from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.link import RedisRefused
from tests.chaos.conftest import sqlite_url
from tests.chaos.databases import query
from tests.transports.streaming import Fleet

__all__ = ["sqlite_url"]


@pytest.fixture
def fleet(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_names_that_no_queue_may_have_are_removed(fleet: Fleet) -> None:
    fleet.enqueue(3, fleet.plain)
    fleet.redis.sadd(fleet.names.queues, b"", b"a\x00b", b" ", b"x" * 500, b"\xff\xfe")
    assert fleet.sweep() == 3
    assert fleet.redis.smembers(fleet.names.queues) == {b"default"}


def test_a_key_of_another_kind_is_told_of_once_and_holds_up_nothing(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.redis.set(fleet.names.stream("aaa"), "x")
    fleet.enqueue(3)
    fleet.enqueue(1, queue="aaa")
    fleet.redis.sadd(fleet.names.queues, "aaa")
    fleet.enqueue(2, fleet.plain)
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert [fleet.sweep(), fleet.sweep()] == [2, 0]
    assert [record.getMessage().count("'aaa'") for record in caplog.records] == [1]
    assert not fleet.transport.streams.link.breaker.is_open, "Redis is not away"
    found = [job for _ in range(10) for job in fleet.claim(limit=1)]
    assert len(found) == 5, "whichever of the two is read first"
    assert {job.message_id is None for job in found} == {False}
    assert fleet.pending() == 5
    fleet.redis.delete(fleet.names.stream("aaa"))
    assert fleet.sweep() == 1
    assert len(fleet.claim(queues=["aaa"])) == 1


def test_messages_that_were_read_before_an_error_are_not_lost(fleet: Fleet) -> None:
    fleet.enqueue(2, queue="first")
    fleet.redis.set(fleet.names.stream("wrong"), "x")
    fleet.enqueue(1, queue="last")
    claimed = fleet.claim(limit=5, queues=["first", "wrong", "last"])
    assert [job.queue for job in claimed] == ["first", "first", "last"]
    assert all(job.message_id is not None for job in claimed)


def test_a_set_of_queues_of_another_kind_leaves_the_queues_that_the_database_knows(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.enqueue(1)
    fleet.redis.set(fleet.names.queues, "x")
    with pytest.raises(RedisRefused):
        fleet.transport.streams.queues()
    with caplog.at_level(logging.WARNING, "holdfast"):
        fleet.sweep()
    assert "the names of queues" in caplog.text
    assert [job.message_id is None for job in fleet.claim(queues=["default"])] == [False]


def test_a_queue_that_somebody_wrote_into_the_database_by_hand_holds_up_no_other(fleet: Fleet) -> None:
    fleet.enqueue(1, fleet.plain, queue="a")
    fleet.enqueue(2, fleet.plain)
    query(fleet.url, "UPDATE holdfast_jobs SET queue = 'a' || char(10) WHERE queue = 'a'")
    assert fleet.sweep() == 2
