"""How far jobs are is told by early heartbeats: soon, and at most once a second for all of them together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Events
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Succeeded, Usage
from holdfast.domain.timing import choose
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker.heartbeats import Heartbeats
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.reports import Ended
from tests.servers.waiting import wait_until
from tests.unit.worker.test_leases import claimed

Step = Callable[[float], list[object]]


class Beating:
    def __init__(self) -> None:
        self.status = Status.APPLIED
        self.away = False
        self.told: list[list[Beat]] = []
        self.book = LeaseBook(choose(60.0))
        self.rung = threading.Event()
        self.heartbeats = Heartbeats(
            lambda: cast(Store, self),
            self.book,
            Events(),
            self.rung.set,
            lambda _held, _answer: None,
            Retrying("heartbeat", Events(), 1.0, spread=lambda _, b: b),
        )

    def heartbeat(self, beats: list[Beat]) -> list[Beaten]:
        self.told.append(beats)
        if self.away:
            raise StoreUnavailable("away")
        return [Beaten(beat.job_id, self.status) for beat in beats]

    def add(self, number: int, at: float = 1000.0) -> Held:
        return self.book.add(claimed(number), TaskInfo("x"), at)

    def step(self, now: float) -> list[object]:
        """The progress that was told at that moment, job by job; empty when nothing was sent."""
        before = len(self.told)
        self.rung.clear()
        self.heartbeats.step(now)
        if self.heartbeats._desk.busy:
            wait_until(self.rung.is_set, what="an answer")
            self.heartbeats.step(now)
        return [beat.progress for beats in self.told[before:] for beat in beats]


@pytest.fixture
def beating() -> Iterator[Beating]:
    beating = Beating()
    yield beating
    beating.heartbeats.close()


def test_progress_is_told_at_once_and_then_every_second_for_all_together(beating: Beating) -> None:
    held = [beating.add(number) for number in range(3)]
    beating.book.said_progress(held[0], {"done": 1})
    assert beating.heartbeats.wake_at() <= 1001.0
    assert beating.step(1001.0) == [{"done": 1}]
    beating.book.said_progress(held[1], {"done": 2})
    beating.book.said_progress(held[0], {"done": 3})
    assert beating.step(1001.5) == []
    assert beating.heartbeats.wake_at() == 1002.0
    assert beating.step(1002.0) == [{"done": 3}, {"done": 2}]
    assert beating.heartbeats.wake_at() == 1020.0


def test_an_early_heartbeat_renews_like_any_other(beating: Beating) -> None:
    held, quiet = beating.add(1), beating.add(2)
    beating.book.said_progress(held, {"done": 1})
    beating.step(1005.0)
    assert (held.confirmed_at, held.beat_at) == (1005.0, 1025.0)
    assert (quiet.confirmed_at, quiet.beat_at) == (1000.0, 1020.0)
    assert beating.step(1020.0) == [None, None]


def test_what_has_ended_tells_it_with_its_report(beating: Beating) -> None:
    held = beating.add(1)
    beating.book.said_progress(held, {"done": 9})
    held.reported = True
    assert beating.step(1001.0) == []
    assert beating.heartbeats.wake_at() >= 1020.0
    assert Ended(held, Succeeded(), Usage()).report(Succeeded(), "w").progress == {"done": 9}


def test_what_was_told_is_not_told_again_with_the_report(beating: Beating) -> None:
    held = beating.add(1)
    beating.book.said_progress(held, {"done": 9})
    beating.step(1001.0)
    assert Ended(held, Succeeded(), Usage()).report(Succeeded(), "w").progress is None


@pytest.mark.parametrize("failure", ["away", "busy"])
def test_what_the_store_did_not_hear_is_told_again(beating: Beating, failure: str) -> None:
    held = beating.add(1)
    beating.book.said_progress(held, {"done": 1})
    beating.away, beating.status = failure == "away", Status.BUSY
    assert beating.step(1001.0) == [{"done": 1}]
    beating.away, beating.status = False, Status.APPLIED
    assert beating.step(1003.0) == [{"done": 1}]
    assert beating.step(1023.0) == [None]
