"""One look at the fleet at a time, shared by everybody; nobody but the first waits for it; a failure is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Event, Events, Problem
from holdfast.ports import Store
from holdfast.serve import gauges
from holdfast.serve.budget import Budget
from holdfast.serve.gauges import FleetNow, Gauges
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.servers.waiting import DEADLINE_SECONDS


class Looks:
    """Real looks that begin when they are let, and that fail when they are told to."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self._look = gauges.look

    def __call__(self, store: Store) -> FleetNow:
        self.count += 1
        assert self.gate.wait(DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error
        return self._look(store)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr(gauges, "look", looks)
    return looks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{tmp_path / 'holdfast.db'}")
    yield store
    store.close()


@asynccontextmanager
async def looking(store: SqlStore, *subscribers: object) -> AsyncIterator[Gauges]:
    events = Events(*subscribers)  # type: ignore[arg-type]
    budget = Budget("reads", lambda: store, 2, events)
    found = Gauges(budget, events)
    try:
        yield found
    finally:
        await found.close()
        budget.cut()
        budget.close()


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.01)


def hangs(fleet: Gauges) -> bool:
    return fleet.hangs


def test_however_many_ask_there_is_one_look_and_the_first_wait_for_it(
    store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 3600.0)

    async def story() -> None:
        async with looking(store) as fleet:
            looks.gate.clear()
            asked = [asyncio.ensure_future(fleet.now()) for _ in range(50)]
            await until(lambda: looks.count)
            assert not any(task.done() for task in asked)
            looks.gate.set()
            answers = await asyncio.gather(*asked)
            assert all(answer is answers[0] for answer in answers)
            assert await fleet.now() is answers[0], "it is still fresh"
            assert looks.count == 1

    asyncio.run(story())


def test_an_old_look_is_shown_while_the_next_is_under_way(
    store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(gauges, "SHARE", 0)

    async def story() -> None:
        async with looking(store) as fleet:
            first = await fleet.now()
            looks.gate.clear()
            assert await fleet.now() is first
            assert await fleet.now() is first
            await until(lambda: looks.count == 2)  # one is under way, for both
            looks.gate.set()
            seen = first
            while seen is first:
                seen = await fleet.now()
            assert seen.taken_at >= first.taken_at

    asyncio.run(story())


def test_what_is_too_old_to_show_is_waited_for(store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(gauges, "SHARE", 0)
    monkeypatch.setattr(gauges, "OLDEST_SECONDS", 0.0)

    async def story() -> None:
        async with looking(store) as fleet:
            first = await fleet.now()
            looks.gate.clear()
            asked = asyncio.ensure_future(fleet.now())
            await until(lambda: looks.count == 2)
            assert not asked.done()
            looks.gate.set()
            assert await asked is not first

    asyncio.run(story())


def test_a_store_that_is_away_is_told_to_all_without_a_wait_and_is_tried_again(
    store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 0.0)

    async def story() -> None:
        async with looking(store) as fleet:
            looks.error = StoreUnavailable("it is away")
            with pytest.raises(StoreUnavailable, match="it is away"):
                await fleet.now()
            looks.gate.clear()
            with pytest.raises(StoreUnavailable, match="it is away"):  # while the next try hangs
                await fleet.now()
            looks.error = None
            looks.gate.set()
            while True:
                try:
                    assert (await fleet.now()).queues == ()
                    return
                except StoreUnavailable:
                    await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_look_that_does_not_end_is_taken_for_a_store_that_is_away(
    store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "HANGING_SECONDS", 3600.0)

    async def story() -> None:
        async with looking(store) as fleet:
            await fleet.now()
            assert not hangs(fleet)
            looks.gate.clear()
            fleet.begin()
            assert not hangs(fleet), "it has only begun"
            monkeypatch.setattr(gauges, "HANGING_SECONDS", 0.0)
            assert hangs(fleet)
            looks.gate.set()
            await until(lambda: not hangs(fleet))

    asyncio.run(story())


def test_what_nobody_foresaw_is_told_once_with_its_traceback(
    store: SqlStore, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 0.0)
    told: list[Event] = []

    async def story() -> None:
        async with looking(store, told.append) as fleet:
            looks.error = KeyError("odd")
            for _ in range(3):
                with pytest.raises(KeyError):
                    await fleet.now()
        [problem] = [event for event in told if isinstance(event, Problem)]
        assert "odd" in problem.message
        assert "Traceback" in (problem.stack or "")

    asyncio.run(story())


def test_whoever_waits_when_the_server_stops_is_told_so(store: SqlStore, looks: Looks) -> None:
    async def story() -> None:
        async with looking(store) as fleet:
            looks.gate.clear()
            asked = asyncio.ensure_future(fleet.now())
            await until(lambda: looks.count)
            await fleet.close()
            with pytest.raises(StoreUnavailable, match="stops"):
                await asked
            looks.gate.set()

    asyncio.run(story())
