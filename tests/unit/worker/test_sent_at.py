"""A lease counts from the moment its claim or heartbeat was *sent*: an answer that took long leaves less of it, by the
worker's own clock, and never more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.events import Events
from holdfast.domain.job import Claimed, ClaimedJobs
from holdfast.domain.manifest import Kind, TaskInfo
from holdfast.domain.timing import choose
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker.heartbeats import Heartbeats
from holdfast.worker.leases import LeaseBook
from holdfast.worker.pickup import Found, Pickup, Room
from tests.servers.waiting import wait_until
from tests.unit.worker.test_leases import claimed

SENT, ANSWERED = 1020.0, 1050.0


class Answering:
    """A store that answers at once; how long that took is what the test says of its clock."""

    def heartbeat(self, beats: list[Beat]) -> list[Beaten]:
        return [Beaten(beat.job_id, Status.APPLIED) for beat in beats]

    def claim(self, *_asked: object) -> ClaimedJobs:
        return ClaimedJobs([claimed(1)])


def answering() -> Callable[[], Store]:
    store = cast(Store, Answering())
    return lambda: store


def test_a_heartbeat_that_was_answered_late_renews_from_when_it_was_sent() -> None:
    rung, events = threading.Event(), Events()
    book = LeaseBook(choose(60.0))
    held = book.add(claimed(1), TaskInfo("x"), 1000.0)
    retrying = Retrying("heartbeat", events, 1.0)
    heartbeats = Heartbeats(answering(), book, events, rung.set, lambda _held, _answer: None, retrying)
    heartbeats.step(SENT)
    wait_until(rung.is_set, what="an answer")
    heartbeats.step(ANSWERED)
    heartbeats.close()
    assert held.deadline == SENT + 60.0


def test_a_claim_that_was_answered_late_counts_from_when_it_was_sent() -> None:
    rung = threading.Event()
    taken: list[tuple[list[Claimed], float]] = []
    rooms = {Kind.SYNC: Room(["x"], 1, [], 0)}
    pickup = Pickup(
        answering(), "w", None, 2.0, lambda: rooms, lambda jobs, at: taken.append((jobs, at)), Events(), rung.set
    )
    assert pickup.poll(SENT) is Found.WAITING
    wait_until(rung.is_set, what="an answer")
    pickup.poll(ANSWERED)
    pickup.close()
    assert [at for _jobs, at in taken] == [SENT]
