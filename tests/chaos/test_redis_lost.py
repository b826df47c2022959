"""Whatever happens to Redis, every job ends, once, and nothing stays behind in it.

The stores of these tests never look into the database for themselves: a job whose message is lost is only found
because the sweeper offers it again, or because Redis is away and claims go to the database.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from holdfast.domain.job import Claimed, NewJob
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.transports.redis_streams.options import GROUP
from tests.chaos.databases import query
from tests.servers.waiting import wait_until
from tests.transports.streaming import Fleet, report

BACKLOG = 1_000
LEASE_SECONDS = 3600.0  # some jobs are held while Redis is away, however long that takes


@pytest.fixture(scope="module")
def running() -> Iterator[ValkeyServer]:
    """One that may be flushed, stopped and frozen."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def valkey(running: ValkeyServer) -> ValkeyServer:
    with redis.Redis.from_url(running.url) as client:
        client.flushall()
    return running


@pytest.fixture
def fleet(postgres_url: str, valkey: ValkeyServer) -> Iterator[Fleet]:
    with Fleet(postgres_url, valkey.url, "holdfast") as fleet:
        yield fleet


@pytest.fixture
def impatient(postgres_url: str, valkey: ValkeyServer) -> Iterator[Fleet]:
    """Soon takes a Redis that does not answer for one that is away."""
    with Fleet(postgres_url, valkey.url, "holdfast", timeout_seconds=0.5, sweep_timeout_seconds=2.0) as impatient:
        yield impatient


def flush(fleet: Fleet, _valkey: ValkeyServer) -> None:
    fleet.redis.flushall()


def shut_down(_fleet: Fleet, valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.shutdown(nosave=True)
    valkey.restart()


def destroy_group(fleet: Fleet, _valkey: ValkeyServer) -> None:
    fleet.redis.xgroup_destroy(fleet.names.stream("default"), GROUP)


def trim(fleet: Fleet, _valkey: ValkeyServer) -> None:
    fleet.redis.xtrim(fleet.names.stream("default"), maxlen=0, approximate=False)


def fill(fleet: Fleet, _valkey: ValkeyServer) -> None:
    """It takes nothing in for a while."""
    fleet.redis.config_set("maxmemory-policy", "noeviction")
    fleet.redis.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(redis.OutOfMemoryError):
            fleet.redis.set("one more", "byte")
        fleet.enqueue(10)
    finally:
        fleet.redis.config_set("maxmemory", "0")


def freeze(fleet: Fleet, valkey: ValkeyServer) -> None:
    """It does not answer, and closes nothing: jobs are enqueued and done all the same."""
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        done = fleet.done()
        fleet.store.enqueue_many([NewJob(task="add") for _ in range(100)])
        wait_until(lambda: fleet.done() >= min(done + 300, _total(fleet)), what="work goes on without Redis")
    finally:
        os.kill(valkey.pid, signal.SIGCONT)


def _total(fleet: Fleet) -> int:
    return sum(fleet.plain.counts().values())


TROUBLES = (flush, shut_down, destroy_group, trim, fill)


def _survive(fleet: Fleet, valkey: ValkeyServer, trouble: Callable[[Fleet, ValkeyServer], None], backlog: int) -> None:
    print(f"{fleet.server()}, pid {valkey.pid}, {backlog} jobs, {trouble.__name__}")
    fleet.enqueue(backlog, lease_seconds=LEASE_SECONDS)
    held = fleet.claim("slow", 50)
    with fleet.working():
        fleet.wait_done(backlog // 10)
        trouble(fleet, valkey)
        assert all(answer.ok for answer in fleet.store.settle([report(job) for job in held]))
        wait_until(lambda: fleet.done() == _total(fleet), what="every job has ended", timeout=300.0)
    fleet.assert_quiet()
    fleet.assert_each_once(_total(fleet))


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_every_job_still_ends(
    fleet: Fleet, valkey: ValkeyServer, trouble: Callable[[Fleet, ValkeyServer], None]
) -> None:
    _survive(fleet, valkey, trouble, BACKLOG)


def test_every_job_still_ends_when_redis_freezes(impatient: Fleet, valkey: ValkeyServer) -> None:
    _survive(impatient, valkey, freeze, BACKLOG)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_every_job_of_ten_thousand_still_ends(
    fleet: Fleet, valkey: ValkeyServer, trouble: Callable[[Fleet, ValkeyServer], None]
) -> None:
    _survive(fleet, valkey, trouble, 10_000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_job_of_ten_thousand_still_ends_when_redis_freezes(impatient: Fleet, valkey: ValkeyServer) -> None:
    _survive(impatient, valkey, freeze, 10_000)


def test_messages_come_up_to_five_times_in_any_order_or_never(fleet: Fleet) -> None:
    print(fleet.server())
    dice = random.Random(5)
    ids = fleet.enqueue(400, fleet.plain)
    copies = [job_id for job_id in ids for _ in range(dice.randrange(6))]
    dice.shuffle(copies)
    assert len(set(copies)) < len(ids), "some are never delivered"
    fleet.send(*copies)
    with fleet.working(threads=3):
        fleet.wait_done(len(ids))
    fleet.assert_quiet()
    fleet.assert_each_once(len(ids))
    [(claims,)] = query(fleet.url, "SELECT count(*) FROM holdfast_events WHERE event = 'claimed'")
    assert claims == len(ids)


def test_connections_are_reset_twenty_times_and_work_resumes(fleet: Fleet) -> None:
    done = 0
    with fleet.working(threads=1):
        for _ in range(20):
            fleet.store.enqueue(NewJob(task="add"))
            done += 1
            fleet.redis.client_kill_filter(_type="normal", skipme=True)
            fleet.wait_done(done)
        wait_until(lambda: not fleet.transport.streams.link.breaker.is_open or not fleet.enqueue(1), what="asked again")
    before = fleet.plain.counts()["succeeded"]
    fleet.enqueue(5)
    assert {job.message_id is not None for job in fleet.claim(limit=10)} == {True}, "by messages, as before"
    assert before >= done


def _flood(fleet: Fleet, rows: int) -> None:
    query(
        fleet.url,
        f"INSERT INTO holdfast_jobs (task, payload) SELECT 'add', '{{}}' FROM generate_series(1, {rows})",
    )
    longest = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal longest
        while not over.wait(0.01):
            longest = max(longest, fleet.length())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with fleet.working():
            fleet.enqueue(1_000)
            fleet.wait_done(1_500)
    finally:
        over.set()
        watching.join()
    print(f"{rows} jobs were due; the stream never had more than {longest} messages")
    assert 0 < longest <= fleet.options.window


def test_a_backlog_does_not_flood_redis(fleet: Fleet) -> None:
    _flood(fleet, 20_000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_backlog_of_a_million_does_not_flood_redis(fleet: Fleet) -> None:
    _flood(fleet, 1_000_000)


def test_enqueueing_and_reporting_go_on_while_redis_is_frozen(impatient: Fleet, valkey: ValkeyServer) -> None:
    impatient.enqueue(5, lease_seconds=LEASE_SECONDS)
    held: list[Claimed] = []

    def all_are_held() -> bool:
        """A slow Redis may have counted as away, and then has no messages yet."""
        impatient.sweep()
        held.extend(impatient.claim())
        return len(held) == 5

    wait_until(all_are_held, what="all jobs are claimed")
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        for _ in range(20):
            impatient.store.enqueue(NewJob(task="add"))
        assert all(answer.ok for answer in impatient.store.settle([report(job) for job in held]))
        more = [job for _ in range(20) for job in impatient.store.claim("ann", 1)]
        assert len(more) == 20
        assert {job.message_id for job in more} == {None}
        impatient.store.settle([report(job) for job in more])
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    impatient.assert_quiet()
    impatient.assert_each_once(25)
