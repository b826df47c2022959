"""Messages lead to jobs and decide nothing: who may claim, what is acknowledged, and where broken ones go."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.domain.answers import Reason, Status
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Released, Snoozed
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.transports.redis_streams.disposal import NO_JOB_NAMED, NO_SUCH_JOB, OTHER_QUEUE
from holdfast.transports.redis_streams.link import Link, connect
from holdfast.transports.redis_streams.options import GROUP, StreamOptions
from holdfast.wiring.redis import streamed
from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.transports.streaming import Fleet, report

__all__ = ["postgres_template", "postgres_url", "sqlite_url", "store_url"]


@pytest.fixture
def fleet(sqlite_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    with Fleet(sqlite_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


@pytest.fixture
def on_both(store_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    """On each kind of database: for what differs in its SQL."""
    with Fleet(store_url, valkey_server.url, uuid.uuid4().hex) as fleet:
        yield fleet


def test_a_job_travels_as_its_id_and_version_and_nothing_stays(on_both: Fleet) -> None:
    fleet = on_both
    print(fleet.server())
    [job_id] = fleet.enqueue(1)
    [(message_id, fields)] = fleet.messages()
    assert fields == {b"job_id": job_id.encode(), b"enqueue_id": b"1"}
    [claimed] = fleet.claim()
    assert (claimed.job_id, claimed.message_id) == (job_id, message_id)
    assert (fleet.length(), fleet.pending()) == (1, 1), "it stays until the outcome is committed"
    fleet.finish([claimed])
    assert (fleet.length(), fleet.pending()) == (0, 0)
    fleet.assert_each_once(1)


def test_only_what_is_due_is_published_and_a_retry_comes_when_it_is_due(fleet: Fleet) -> None:
    fleet.enqueue(1, delay=3600)
    assert fleet.length() == 0
    fleet.enqueue(1)
    fleet.finish(fleet.claim(), Failed(JobError("boom", "it broke")))
    assert fleet.length() == 0, "it backs off"
    fleet.sweep()
    assert fleet.length() == 0


def test_what_is_given_back_is_published_again(fleet: Fleet) -> None:
    [job_id] = fleet.enqueue(1)
    fleet.finish(fleet.claim(), Released())
    [claimed] = fleet.claim("bob")
    assert claimed.job_id == job_id
    fleet.finish([claimed], Failed(JobError("bad", "never", retryable=False)))
    assert fleet.length() == 0
    fleet.store.requeue([job_id])
    fleet.flush()
    assert [fields[b"job_id"] for _id, fields in fleet.messages()] == [job_id.encode()]


def test_a_replay_is_published(fleet: Fleet) -> None:
    [job_id] = fleet.enqueue(1)
    fleet.finish(fleet.claim())
    replay = fleet.store.replay(job_id)
    fleet.flush()
    assert [fields[b"job_id"] for _id, fields in fleet.messages()] == [replay.id.encode()]


def test_in_the_users_own_transaction_nothing_is_published_until_the_sweep(fleet: Fleet) -> None:
    with fleet.plain.database.engine.begin() as connection:
        fleet.store.enqueue(NewJob(task="add"), connection)
        fleet.flush()
        assert fleet.length() == 0
    assert fleet.sweep() == 1
    assert len(fleet.claim()) == 1


def test_a_report_acknowledges_its_own_message_and_no_other(fleet: Fleet) -> None:
    fleet.enqueue(2)
    first, second = fleet.claim()
    forged = replace(report(first), message_id=second.message_id)
    assert fleet.store.settle([forged])[0].status is Status.APPLIED
    fleet.flush()
    assert fleet.pending() == 2, "the other job's message is not its own"
    guessed = replace(report(second), lease_token="0" * 64)
    assert fleet.store.settle([guessed])[0].reason is Reason.UNKNOWN_LEASE
    nonsense = replace(report(first), message_id="'; FLUSHALL")
    fleet.store.settle([nonsense])
    fleet.flush()
    assert fleet.pending() == 2
    fleet.finish([first, second])
    assert (fleet.length(), fleet.pending()) == (0, 0), "also by the same report again"


def test_a_report_under_a_lost_lease_acknowledges_too(fleet: Fleet) -> None:
    [job_id] = fleet.enqueue(1)
    [claimed] = fleet.claim()
    fleet.plain.settle([report(claimed, Released())])  # as if by somebody else
    [other] = fleet.plain.claim("bob")
    assert other.job_id == job_id
    [answer] = fleet.store.settle([report(claimed)])
    assert answer.reason is Reason.CONFLICTING_REPORT
    fleet.flush()
    assert fleet.length() == 0


def test_a_message_whose_job_is_over_or_held_or_later_goes_at_once(fleet: Fleet) -> None:
    held, over, later = fleet.enqueue(3, fleet.plain)
    fleet.plain.claim_job("bob", held)
    for job_id, outcome in ((over, None), (later, Snoozed(3600.0))):
        claimed = fleet.plain.claim_job("bob", job_id)
        assert claimed is not None
        fleet.plain.settle([report(claimed, outcome)])
    fleet.send(held, over, later, over)
    assert fleet.claim() == []
    assert (fleet.length(), fleet.pending()) == (0, 0)
    assert fleet.dead() == []


def test_messages_that_lead_nowhere_become_dead_letters(fleet: Fleet) -> None:
    [elsewhere] = fleet.enqueue(1, fleet.plain, queue="elsewhere")
    stream = fleet.names.stream("default")
    fleet.redis.xadd(stream, {b"\xff": b"\xfe\x00"})
    fleet.redis.xadd(stream, {"job_id": "one; two", "text": "x" * 10_000})
    fleet.send(str(uuid.uuid4()), elsewhere)
    assert fleet.claim(queues=["default"]) == []
    assert [letter[b"reason"].decode() for letter in fleet.dead()] == [
        NO_JOB_NAMED,
        NO_JOB_NAMED,
        NO_SUCH_JOB,
        OTHER_QUEUE,
    ]
    assert max(len(letter[b"message"]) for letter in fleet.dead()) <= 500
    assert (fleet.length(), fleet.pending()) == (0, 0)
    assert fleet.plain.job(elsewhere).attempt == 0


def test_a_job_of_a_task_that_was_not_asked_for_is_put_back(fleet: Fleet) -> None:
    [job_id] = fleet.enqueue(1)
    assert fleet.claim(tasks=["other"]) == []
    assert fleet.length() == 1
    [claimed] = fleet.claim("bob", tasks=["add"])
    assert claimed.job_id == job_id


def test_queues_are_read_in_their_order_and_others_not_at_all(fleet: Fleet) -> None:
    for queue in ("a", "b", "c"):
        fleet.enqueue(2, queue=queue)
    assert [job.queue for job in fleet.claim(limit=3, queues=["b", "a"])] == ["b", "b", "a"]
    assert [job.queue for job in fleet.claim(queues=["c"])] == ["c", "c"]
    assert [job.queue for job in fleet.claim()] == ["a"], "without names it is all of them"
    assert fleet.claim(queues=[]) == []


def test_the_same_request_gets_the_same_message_also_elsewhere(fleet: Fleet) -> None:
    fleet.enqueue(3)
    elsewhere = streamed(fleet.plain, fleet.transport)
    first = fleet.store.claim("ann", 2, credential="token-1", request_id="r1")
    again = elsewhere.claim("ann", 2, credential="token-1", request_id="r1")
    assert [(job.attempt_id, job.lease_token, job.message_id) for job in first] == [
        (job.attempt_id, job.lease_token, job.message_id) for job in again
    ]
    assert fleet.pending() == 2
    reports = [replace(report(job), credential="token-1") for job in again]
    fleet.transport.origins.take(again[0].job_id)  # a process that did not claim it looks its queue up
    fleet.store.settle(reports)
    fleet.flush()
    assert fleet.pending() == 0


def test_a_job_under_a_limit_is_not_offered_and_found_by_a_look(on_both: Fleet) -> None:
    fleet = on_both
    fleet.plain.set_source("api", max_concurrent=1)
    fleet.enqueue(3, source="api")
    fleet.enqueue(1)
    claimed = fleet.claim()
    assert sorted(job.source or "" for job in claimed) == ["", "api"], "admission holds for messages too"
    fleet.sweep()
    assert fleet.length() == 2, "nothing but what runs"
    fleet.finish(claimed)
    looking = streamed(fleet.plain, fleet.transport)
    assert [job.source for job in looking.claim("bob", 10)] == ["api"]


def test_a_stream_is_never_longer_than_its_window_and_is_topped_up_in_the_order_of_claims(on_both: Fleet) -> None:
    fleet = on_both
    fleet.enqueue(400)
    assert fleet.length() == 300
    urgent = fleet.enqueue(2, fleet.plain, priority=50)
    done = fleet.claim(limit=100)
    fleet.finish(done)
    assert fleet.sweep() == 100
    assert fleet.length() == 300
    messages = [fields[b"job_id"].decode() for _id, fields in fleet.messages()]
    assert len(set(messages)) == 300
    assert set(urgent) < set(messages)
    assert messages[200:202] == urgent


def test_a_paused_queue_has_no_messages_and_gets_them_back(fleet: Fleet) -> None:
    fleet.enqueue(2)
    fleet.store.pause_queue("default")
    fleet.sweep()
    assert fleet.length() == 0
    fleet.store.resume_queue("default")
    fleet.sweep()
    assert fleet.length() == 2


def test_messages_in_no_hands_are_found(fleet: Fleet) -> None:
    """Somebody acknowledged by hand, or removed a consumer: no reader will ever get these again."""
    ids = fleet.enqueue(3)
    read = fleet.transport.streams.take("ghost", None, 3)
    fleet.redis.xack(fleet.names.stream("default"), GROUP, read[0].id)
    fleet.redis.xgroup_delconsumer(fleet.names.stream("default"), GROUP, "ghost")
    assert fleet.claim() == []
    fleet.sweep()
    assert sorted(job.job_id for job in fleet.claim()) == sorted(ids)


def test_a_message_in_no_hands_is_dropped_where_another_of_its_job_can_still_be_read(fleet: Fleet) -> None:
    [job_id] = fleet.enqueue(1)
    [read] = fleet.transport.streams.take("ghost", None, 1)
    fleet.redis.xack(fleet.names.stream("default"), GROUP, read.id)
    [unread] = fleet.send(job_id)
    assert fleet.sweep() == 1
    assert [message_id for message_id, _fields in fleet.messages()] == [unread]
    [claimed] = fleet.claim()
    assert (claimed.job_id, claimed.message_id) == (job_id, unread)


def test_consumers_that_are_gone_are_removed_and_then_their_stream(fleet: Fleet) -> None:
    fleet.enqueue(1)
    fleet.finish(fleet.claim())
    fleet.sweep()
    assert [consumer["name"] for consumer in fleet.redis.xinfo_consumers(fleet.names.stream("default"), GROUP)] == [
        b"ann"
    ]
    fleet.sweeper.sweep("default")
    fleet.transport.streams.tidy("default", 0.0)
    assert not fleet.length_known("default")
    assert fleet.transport.streams.queues() == set()


def test_no_password_is_shown() -> None:
    url = "redis://:hunter2@127.0.0.1:1/0"
    assert "hunter2" not in repr(StreamOptions(url=url))
    link = Link(url, 0.1)
    with pytest.raises(Exception, match=r"Redis|refused|Error") as raised:
        link.members("x")
    assert "hunter2" not in f"{raised.value!r} {raised.value.__cause__!r}"
    with pytest.raises(ConfigurationError) as wrong:
        connect("redis://:hunter2@host/0?socket_timeout=hunter2", 0.1)
    assert "hunter2" not in str(wrong.value)


SHORT = """
import sys
from holdfast.domain.job import NewJob
from holdfast.settings import read_settings
from holdfast.wiring.sql import open_store
from holdfast.wiring.redis import published
store = published(open_store(sys.argv[1]), read_settings())
print(store.enqueue(NewJob(task="add")).id)
"""


def test_a_short_process_publishes_before_it_ends(tmp_path: Path, fleet: Fleet) -> None:
    environment = {"REDIS_URL": fleet.options.url, "HOLDFAST_REDIS_PREFIX": fleet.options.prefix}
    command = [sys.executable, "-c", SHORT, fleet.url]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert [fields[b"job_id"].decode() for _id, fields in fleet.messages()] == [done.stdout.strip()]
