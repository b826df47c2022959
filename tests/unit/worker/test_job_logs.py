"""Lines on their way to the store: how often, how many at once, and what gives way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Events
from holdfast.domain.logs import Gaps, LogLine, LostLines, Stream
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker import job_logs
from holdfast.worker.job_logs import BACKLOG_EVERY_SECONDS, BATCH, EVERY_SECONDS, JobLogs
from tests.servers.waiting import wait_until

AT = datetime(2026, 1, 2, tzinfo=UTC)


def lines(count: int, first: int = 1, size: int = 1) -> list[LogLine]:
    return [LogLine("x", 1, number, AT, Stream.STDOUT, "x" * size) for number in range(first, first + count)]


class Keeper:
    """A store that keeps batches, or is away."""

    def __init__(self) -> None:
        self.batches: list[list[LogLine]] = []
        self.away = False
        self.answered = threading.Event()

    def append_logs(self, batch: list[LogLine]) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.batches.append(list(batch))


class Desk:
    """The part, and time that passes when the test says so."""

    def __init__(self) -> None:
        self.keeper = Keeper()
        self.rung = threading.Event()
        self.logs = JobLogs(
            lambda: cast(Store, self.keeper), self.rung.set, Retrying("logs", Events(), 1.0, spread=lambda _, b: b)
        )

    def step(self, now: float) -> int:
        """What was asked at that moment, once it is answered."""
        before = len(self.keeper.batches)
        self.rung.clear()
        self.logs.step(now)
        if self.logs._desk.busy:
            wait_until(self.rung.is_set, what="an answer")
            self.logs._take(now)
        return sum(map(len, self.keeper.batches[before:]))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.logs.close()


def test_the_first_line_leaves_at_once_and_the_next_ones_together(desk: Desk) -> None:
    desk.logs.add(lines(1))
    assert desk.step(100.0) == 1
    desk.logs.add(lines(3, first=2))
    assert desk.step(100.1) == 0
    assert desk.logs.wake_at() == 100.0 + EVERY_SECONDS
    desk.logs.add(lines(3, first=5))
    assert desk.step(100.0 + EVERY_SECONDS) == 6


def test_a_backlog_leaves_in_batches_at_a_bounded_rate(desk: Desk) -> None:
    desk.logs.add(lines(2_500))
    assert desk.step(100.0) == BATCH
    assert desk.step(100.01) == 0
    assert desk.step(100.0 + BACKLOG_EVERY_SECONDS) == BATCH
    assert desk.step(100.0 + 2 * BACKLOG_EVERY_SECONDS) == 500
    assert desk.logs.wake_at() == float("inf")


def test_long_lines_make_small_batches(desk: Desk) -> None:
    desk.logs.add(lines(100, size=60_000))
    assert desk.step(100.0) == 18  # a little over a mebibyte


def test_draining_does_not_wait(desk: Desk) -> None:
    desk.logs.add(lines(2_500))
    stored = 0
    while len(desk.logs):
        desk.logs.flush()
        stored += desk.step(100.0)
    assert stored == 2_500


def test_what_the_store_did_not_take_is_sent_again_in_order(desk: Desk) -> None:
    desk.keeper.away = True
    desk.logs.add(lines(5))
    assert desk.step(100.0) == 0
    desk.keeper.away = False
    desk.logs.add(lines(5, first=6))
    assert desk.step(200.0) == 10
    assert [line.number for line in desk.keeper.batches[0]] == list(range(1, 11))


def test_the_oldest_lines_give_way_and_a_reader_can_count_them(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_logs, "MOST_BYTES", 100_000)
    desk.keeper.away = True
    desk.logs.add(lines(10))
    desk.step(100.0)
    desk.logs.add(lines(990, first=11))
    kept = len(desk.logs)
    assert 300 < kept < 500
    desk.keeper.away = False
    desk.logs.flush()
    assert desk.step(200.0) == kept
    gaps = Gaps()
    lost = [gaps.before(line) for line in desk.keeper.batches[0]]
    assert lost == [LostLines(1, 1_000 - kept), *[None] * (kept - 1)]


def test_gaps_are_counted_for_each_attempt() -> None:
    def line(attempt: int, number: int) -> LogLine:
        return LogLine("x", attempt, number, AT, Stream.LOG, "")

    gaps = Gaps()
    found = [gaps.before(line(*place)) for place in [(1, 1), (1, 2), (1, 5), (2, 1), (3, 4), (3, 5)]]
    assert found == [None, None, LostLines(1, 2), None, LostLines(3, 3), None]
