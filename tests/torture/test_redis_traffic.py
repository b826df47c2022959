"""Messages that come twice, out of order or never: they are really meddled with, and every job still ends once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rq import Queue
from rq.job import Job as RqJob

from holdfast.domain.lifecycle import State
from holdfast.domain.offers import Offer
from holdfast.throwaway.valkey import ValkeyEndpoint
from holdfast.torture.redis_traffic import RqTraffic, StreamTraffic
from holdfast.transports.rq_queues import RqQueues
from tests.rq.station import Station
from tests.servers.waiting import DEADLINE_SECONDS
from tests.transports.streaming import Fleet
from tests.worker.site import Site

JOBS = 20


@pytest.fixture
def fleet(tmp_path: Path, valkey_server: ValkeyEndpoint) -> Iterator[Fleet]:
    url, prefix = f"sqlite:///{tmp_path / 'jobs.db'}", uuid.uuid4().hex
    with Fleet(url, valkey_server.url, prefix, timeout_seconds=DEADLINE_SECONDS) as fleet:
        yield fleet


@pytest.fixture
def traffic(fleet: Fleet) -> StreamTraffic:
    return StreamTraffic(fleet.redis, prefix=fleet.names.prefix, seed=1)


def named(fleet: Fleet) -> list[str]:
    """The jobs that the stream's messages name, in their order."""
    return [fields[b"job_id"].decode() for _id, fields in fleet.messages()]


def test_copies_of_messages_are_added_behind_them(fleet: Fleet, traffic: StreamTraffic) -> None:
    ids = fleet.enqueue(JOBS)
    assert traffic.duplicate(7) == 7
    assert named(fleet)[:JOBS] == ids
    again = named(fleet)[JOBS:]
    assert len(set(again)) == 7
    assert set(again) < set(ids)
    assert traffic.duplicate(1000) == JOBS + 7
    with fleet.working():
        fleet.wait_done(JOBS)
    fleet.assert_each_once(JOBS)
    fleet.assert_quiet()


def test_messages_come_in_another_order(fleet: Fleet, traffic: StreamTraffic) -> None:
    ids = fleet.enqueue(JOBS)
    held = fleet.claim(limit=3)
    assert traffic.shuffle() == JOBS
    assert sorted(named(fleet)) == sorted(ids)
    assert named(fleet) != ids
    fleet.finish(held)
    with fleet.working():
        fleet.wait_done(JOBS)
    fleet.assert_each_once(JOBS)
    fleet.assert_quiet()


def test_messages_are_dropped_and_their_jobs_are_found_again(fleet: Fleet, traffic: StreamTraffic) -> None:
    fleet.enqueue(JOBS)
    dropped = traffic.drop(0.5)
    assert 0 < dropped < JOBS
    assert len(named(fleet)) == JOBS - dropped
    assert traffic.drop(1.0) == JOBS - dropped
    assert traffic.drop(1.0) == 0
    with fleet.working():
        fleet.wait_done(JOBS)
    fleet.assert_each_once(JOBS)


def test_groups_are_destroyed_with_what_they_know(fleet: Fleet, traffic: StreamTraffic) -> None:
    assert traffic.destroy_groups() == 0
    fleet.enqueue(JOBS)
    held = fleet.claim(limit=3)
    assert fleet.pending() == 3
    assert traffic.destroy_groups() == 1
    assert fleet.redis.xinfo_groups(fleet.names.stream("default")) == []
    fleet.finish(held)
    with fleet.working():
        fleet.wait_done(JOBS)
    fleet.assert_each_once(JOBS)


def test_only_the_streams_of_the_queues_that_were_named_are_hit(fleet: Fleet) -> None:
    fleet.enqueue(2, queue="mine")
    fleet.enqueue(3, queue="theirs")
    traffic = StreamTraffic(fleet.redis, ["mine", "unknown"], prefix=fleet.names.prefix)
    assert traffic.drop(1.0) == 2
    assert (fleet.length("mine"), fleet.length("theirs")) == (0, 3)


# RQ


class Box:
    """A queue of RQ with messages for jobs, as Holdfast puts them there."""

    def __init__(self, fleet: Fleet, count: int) -> None:
        self.name = f"rq-{uuid.uuid4().hex[:12]}"
        self.queue = Queue(self.name, connection=fleet.redis)
        self.jobs = [f"{number:036d}" for number in range(count)]
        self.queues = RqQueues(fleet.options.url, timeout=DEADLINE_SECONDS)
        assert self.push() == count
        self.traffic = RqTraffic(fleet.redis, [self.name], seed=1)

    def push(self) -> int:
        return self.queues.push(Offer(job_id, self.name, 1, "add", claimable=True) for job_id in self.jobs)

    def named(self) -> list[str]:
        return [message.args[0] for message in self.queue.get_jobs()]

    def close(self) -> None:
        self.queue.delete(delete_jobs=True)
        self.queues.close()


@pytest.fixture
def box(fleet: Fleet) -> Iterator[Box]:
    box = Box(fleet, JOBS)
    yield box
    box.close()


def test_copies_of_rq_messages_say_the_same_under_ids_of_their_own(fleet: Fleet, box: Box) -> None:
    assert box.traffic.duplicate(7) == 7
    assert box.named()[:JOBS] == box.jobs
    again = box.queue.get_jobs()[JOBS:]
    assert len({message.args[0] for message in again} & set(box.jobs)) == 7
    first = RqJob.fetch(again[0].id.partition("-again-")[0], connection=fleet.redis)
    assert (first.func_name, first.args, first.meta) == (again[0].func_name, again[0].args, again[0].meta)
    assert box.traffic.duplicate(1000) == JOBS + 7
    assert len(set(box.queue.job_ids)) == 2 * (JOBS + 7)


def test_rq_messages_come_in_another_order(box: Box) -> None:
    assert box.traffic.shuffle() == JOBS
    assert sorted(box.named()) == box.jobs
    assert box.named() != box.jobs


def test_dropped_rq_messages_leave_nothing_and_can_be_offered_again(box: Box) -> None:
    dropped = box.traffic.drop(0.5)
    assert 0 < dropped < JOBS
    assert len(box.named()) == JOBS - dropped
    assert box.push() == dropped
    assert sorted(box.named()) == box.jobs
    assert box.traffic.drop(1.0) == JOBS


@pytest.mark.long  # each message is a process that imports what it needs
def test_a_stock_rq_worker_runs_each_job_once_whatever_became_of_its_messages(
    tmp_path: Path, valkey_server: ValkeyEndpoint
) -> None:
    with Site(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}") as site:
        station = Station(site, valkey_server.url)
        try:
            jobs = [station.send_new("note", {"name": "notes.txt"})[0] for _ in range(2)]
            traffic = RqTraffic(station.redis, [station.queue], seed=1)
            assert traffic.duplicate(2) == 2
            assert traffic.shuffle() == 4
            worker = station.rq_worker("--burst", "-c", "holdfast.rq.preload", HOLDFAST_GRACE_SECONDS="0.2")
            assert worker.wait() == 0, worker.text()
            assert {station.state(job_id) for job_id in jobs} == {State.SUCCEEDED}
            assert (tmp_path / "notes.txt").read_text() == "once\n" * 2
            assert [site.event_names(job_id) for job_id in jobs] == [["enqueued", "claimed", "succeeded"]] * 2
            assert station.failed_messages() == []
        finally:
            station.close()
