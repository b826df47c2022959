"""A heartbeat and the report of one attempt are never on their way together: the later one would be refused, and a
refusal is kept as evidence of a zombie."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from holdfast.domain.answers import Beat, Beaten, Settled, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Events
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Report, Succeeded, Usage
from holdfast.domain.timing import choose
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker.heartbeats import Heartbeats
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.reports import Ended, Reports
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.unit.worker.test_leases import claimed


class SlowStore:
    """Answers when it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.away = False
        self.asked: list[str] = []

    def heartbeat(self, beats: list[Beat]) -> list[Beaten]:
        self._wait("heartbeat")
        return [Beaten(beat.job_id, Status.APPLIED) for beat in beats]

    def settle(self, reports: list[Report]) -> list[Settled]:
        self._wait("report")
        return [Settled(report.job_id, report.attempt, Status.APPLIED) for report in reports]

    def _wait(self, verb: str) -> None:
        self.asked.append(verb)
        assert self.may_answer.wait(DEADLINE_SECONDS)
        self.may_answer.clear()
        if self.away:
            raise StoreUnavailable("away")


class Bench:
    def __init__(self) -> None:
        self.store = SlowStore()
        self.book = LeaseBook(choose(60.0))
        self.settled: list[Settled] = []
        events, store = Events(), lambda: cast(Store, self.store)
        self.heartbeats = Heartbeats(
            store, self.book, events, lambda: None, lambda _held, _answer: None, self._retrying("heartbeat", events)
        )
        self.reports = Reports(
            store,
            "worker",
            events,
            lambda: None,
            lambda _ended, answer: self.settled.append(answer),
            self._retrying("report", events),
        )

    def _retrying(self, what: str, events: Events) -> Retrying:
        return Retrying(what, events, 1.0, spread=lambda _, b: b)

    def add(self) -> Held:
        return self.book.add(claimed(1), TaskInfo("x"), 1000.0)

    def end(self, held: Held) -> None:
        held.reported = True
        self.reports.add(Ended(held, Succeeded(), Usage()))

    def answer(self, verb: str, count: int) -> None:
        wait_until(lambda: self.store.asked.count(verb) == count, what=f"a {verb} is asked for")
        self.store.may_answer.set()
        desk = self.heartbeats._desk if verb == "heartbeat" else self.reports._desk
        wait_until(lambda: not self.store.may_answer.is_set() and desk._answers.qsize() > 0, what="an answer")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.store.may_answer.set()
    bench.heartbeats.close()
    bench.reports.close()


def test_a_report_waits_for_the_heartbeat_that_is_on_its_way(bench: Bench) -> None:
    held = bench.add()
    bench.heartbeats.step(1020.0)
    bench.end(held)
    bench.reports.step(1020.0)
    assert bench.reports.wake_at() == NEVER, "it does not turn in circles meanwhile"
    bench.answer("heartbeat", 1)
    bench.heartbeats.step(1020.1)
    bench.reports.step(1020.1)
    bench.answer("report", 1)
    bench.reports.step(1020.2)
    assert bench.store.asked == ["heartbeat", "report"]
    assert [answer.status for answer in bench.settled] == [Status.APPLIED]


def test_no_heartbeat_beside_a_report_but_again_once_that_has_failed(bench: Bench) -> None:
    held = bench.add()
    bench.end(held)
    bench.reports.step(1001.0)
    bench.heartbeats.step(1050.0)  # long due, even for a job whose report takes its time
    assert bench.heartbeats.wake_at() > 1050.0
    bench.store.away = True
    bench.answer("report", 1)
    bench.reports.step(1050.0)
    bench.store.away = False
    bench.heartbeats.step(1051.0)
    bench.answer("heartbeat", 1)
    bench.heartbeats.step(1051.1)
    assert bench.store.asked == ["report", "heartbeat"]
    assert held.confirmed_at == 1051.0
