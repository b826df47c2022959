"""How a worker goes about its chores, on a real store, with a clock that the test moves."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Event, Events, StoreBack, StoreFailed, UpkeepDone, UpkeepFailed, UpkeepStep
from holdfast.domain.job import NewJob
from holdfast.maintenance.checkpoints import checkpoints
from holdfast.maintenance.chores import Chore
from holdfast.periodic import upkeep
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.periodic.upkeep import Upkeep
from holdfast.ports import Store
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.servers.waiting import wait_until

PERIOD = 100.0
STEP_SECONDS = 0.01


@pytest.fixture(autouse=True)
def steps_take_as_long_as_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a step depends on how long the step took."""
    readings = count()
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: next(readings) * STEP_SECONDS))


class Bench:
    """An upkeep, what it said, and its clock."""

    def __init__(self, store: Callable[[], Store], *chores: Chore, worker: str = "ann") -> None:
        self.said: list[Event] = []
        self.now = 1000.0
        self.may_work = True
        self.rung = 0
        events = Events(self.said.append)
        self.upkeep = Upkeep(
            store,
            lambda _store: list(chores),
            worker,
            events,
            self._ring,
            lambda: self.may_work,
            Retrying("upkeep", events, longest=30.0),
        )

    def _ring(self) -> None:
        self.rung += 1

    def step(self) -> None:
        """Until the desk has answered what it was asked, if it was asked something."""
        before = self.rung
        self.upkeep.step(self.now)
        if self.upkeep.wake_at() == NEVER and self.may_work:
            wait_until(lambda: self.rung > before, what="the desk has answered")
        self.upkeep.step(self.now)

    def run(self, seconds: float) -> None:
        """Let time pass, from one thing to do to the next."""
        end = self.now + seconds
        while True:
            self.step()
            at = self.upkeep.wake_at()
            if at > end:
                break
            self.now = max(self.now, at)
        self.now = end

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.said if isinstance(event, kind)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield store
    store.close()


@pytest.fixture
def bench(store: SqlStore) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*chores: Chore, worker: str = "ann", reach: Callable[[], Store] = lambda: store) -> Bench:
        made.append(Bench(reach, *chores, worker=worker))
        return made[-1]

    yield make
    for each in made:
        each.upkeep.close()


def chore(name: str, *counts: int, begun: list[str] | None = None) -> Chore:
    def steps() -> Iterator[int]:
        if begun is not None:
            begun.append(name)
        yield from counts

    return Chore(name, PERIOD, steps)


def test_a_chore_is_done_step_by_step_and_told_of(bench: Callable[..., Bench]) -> None:
    one = bench(chore("sweep", 3, 0, 4))
    one.run(PERIOD * 0.09)
    assert one.said == [], "not at once: there are jobs to be done"
    one.run(PERIOD * 0.5)
    assert [(step.chore, step.count) for step in one.of(UpkeepStep) if isinstance(step, UpkeepStep)] == [
        ("sweep", 3),
        ("sweep", 4),
    ]
    [done] = one.of(UpkeepDone)
    assert isinstance(done, UpkeepDone)
    assert (done.chore, done.count, done.finished) == ("sweep", 7, True)


def test_a_chore_with_nothing_to_do_says_nothing(bench: Callable[..., Bench]) -> None:
    begun: list[str] = []
    one = bench(chore("sweep", 0, begun=begun))
    one.run(PERIOD)
    assert (begun, one.said) == (["sweep"], [])


def test_of_several_workers_one_has_the_turn(bench: Callable[..., Bench]) -> None:
    begun: list[str] = []
    crew = [bench(chore("sweep", 1, begun=begun), worker=name) for name in ("ann", "bob", "eve")]
    for one in crew:
        one.run(PERIOD * 0.5)
    assert begun == ["sweep"]


def test_chores_that_are_at_work_alternate(bench: Callable[..., Bench]) -> None:
    one = bench(chore("sweep", *[1] * 20), chore("paint", *[1] * 20))
    one.run(PERIOD)
    order = [step.chore for step in one.of(UpkeepStep) if isinstance(step, UpkeepStep)]
    assert sorted(order) == ["paint"] * 20 + ["sweep"] * 20
    late = order.index(order[-1])
    assert order[late : late + 4] in (["sweep", "paint"] * 2, ["paint", "sweep"] * 2) or late == 20


def test_after_a_step_there_is_a_pause_of_several_times_as_long(bench: Callable[..., Bench]) -> None:
    one = bench(chore("sweep", 1, 1))
    one.run(PERIOD * 0.1)
    while not one.of(UpkeepStep):
        one.now = max(one.now, one.upkeep.wake_at())
        one.step()
    [step] = one.of(UpkeepStep)
    assert isinstance(step, UpkeepStep)
    assert step.seconds >= STEP_SECONDS
    assert one.upkeep.wake_at() >= one.now + 4 * step.seconds
    one.step()
    assert len(one.of(UpkeepStep)) == 1, "before the pause is over nothing happens"


def test_a_chore_that_fails_is_told_of_and_tried_again_less_and_less_often(bench: Callable[..., Bench]) -> None:
    def steps() -> Iterator[int]:
        yield 1
        raise ValueError("the broom broke")

    one = bench(
        Chore("sweep", PERIOD, steps, by_turns=False), Chore("paint", PERIOD, lambda: iter([1]), by_turns=False)
    )
    one.run(PERIOD * 12)
    failures = [event for event in one.of(UpkeepFailed) if isinstance(event, UpkeepFailed)]
    assert {(event.chore, event.message) for event in failures} == {("sweep", "the broom broke")}
    assert "ValueError" in (failures[0].stack or "")
    waits = [event.retry_seconds for event in failures]
    assert waits == sorted(waits)
    assert 3 <= len(waits) <= 4
    painted = [event for event in one.of(UpkeepDone) if isinstance(event, UpkeepDone) and event.chore == "paint"]
    assert len(painted) >= 10, "the other one goes on"


def test_a_worker_that_may_not_work_stops_and_asks_for_nothing(bench: Callable[..., Bench]) -> None:
    one = bench(chore("sweep", *[1] * 50))
    one.run(PERIOD * 0.1)
    while not one.of(UpkeepStep):
        one.now = max(one.now, one.upkeep.wake_at())
        one.step()
    one.may_work = False
    one.step()
    assert one.upkeep.wake_at() == NEVER
    [done] = one.of(UpkeepDone)
    assert isinstance(done, UpkeepDone)
    assert not done.finished
    said = len(one.said)
    one.now += 10 * PERIOD
    one.step()
    assert len(one.said) == said


def test_who_has_lost_the_turn_stops(bench: Callable[..., Bench], store: SqlStore) -> None:
    one = bench(chore("sweep", *[1] * 5000))
    one.run(PERIOD * 0.1)
    while not one.of(UpkeepStep):
        one.now = max(one.now, one.upkeep.wake_at())
        one.step()
    assert store.take_turn("sweep", "bob", 0.0)
    one.now += 6
    one.run(1.0)
    [done] = one.of(UpkeepDone)
    assert isinstance(done, UpkeepDone)
    assert done.count < 5000
    assert not store.keep_turn("sweep", "ann")


def test_a_store_that_is_away_is_told_of_once_and_waited_for(bench: Callable[..., Bench], store: SqlStore) -> None:
    away = True

    def reach() -> Store:
        if away:
            raise StoreUnavailable("nobody there")
        return store

    one = bench(chore("sweep", 2), reach=reach)
    one.run(PERIOD * 3)
    assert [event.what for event in one.said if isinstance(event, StoreFailed)] == ["upkeep"]
    away = False
    one.run(PERIOD * 3)
    assert [event.what for event in one.said if isinstance(event, StoreBack)] == ["upkeep"]
    assert one.of(UpkeepDone)


def test_a_log_that_stayed_long_is_checkpointed_when_nobody_commits_any_more(
    store: SqlStore, tmp_path: Path, bench: Callable[..., Bench]
) -> None:
    wal = tmp_path / "jobs.db-wal"
    reader = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM holdfast_jobs").fetchone()
    for _ in range(40):  # while somebody reads, no checkpoint can empty the log
        store.enqueue(NewJob(task="big", payload={"text": "x" * 200_000}))
    assert wal.stat().st_size > 5_000_000
    assert store.checkpoint() is False
    reader.close()
    one = bench(checkpoints(lambda: store, period_seconds=PERIOD))
    one.run(PERIOD)
    assert wal.stat().st_size == 0
    assert [event.chore for event in one.of(UpkeepDone) if isinstance(event, UpkeepDone)] == ["checkpoint"]
    assert store.turns() == [], "nobody asks for a turn: the lock beside the file is enough"
