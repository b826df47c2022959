"""What the routes work on: the ways to the store, and those who wait.

Each budget has threads and connections of its own, so that nothing of one kind can hold up another: while every read
hangs on a lock, heartbeats are answered.

control   heartbeats, reports, job logs
claims    claims, also those of waiting workers
writes    enqueueing and the verbs of operators
reads     queries and event streams
tokens    who is asking
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated

from fastapi import Depends, Request

from holdfast.domain.events import Events
from holdfast.domain.timing import LONGEST_TIMEOUT_SECONDS
from holdfast.observe.board import Board
from holdfast.serve.batching import Batching
from holdfast.serve.budget import Budget
from holdfast.serve.duties import PeriodicDuties
from holdfast.serve.gauges import Gauges
from holdfast.serve.hub import Hub
from holdfast.serve.options import ServeSettings
from holdfast.serve.stores import SLOW_TIMEOUT_SECONDS, Stores
from holdfast.serve.wake_ups import WakeUps

__all__ = ["Budget", "Plane", "PlaneDep", "get_plane", "make_plane"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    settings: ServeSettings
    events: Events
    control: Budget
    claims: Budget
    writes: Budget
    reads: Budget
    tokens: Budget
    hub: Hub
    batching: Batching
    gauges: Gauges
    board: Board
    wake_ups: WakeUps
    duties: PeriodicDuties | None
    stores: Stores
    stopping: asyncio.Event  # set once: whoever streams or waits ends now

    async def open(self) -> None:
        """Waits for nothing: a server begins also while its store is away."""
        self.wake_ups.open()
        if self.duties is not None:
            self.duties.start()
        self.gauges.begin()

    def begin_stop(self) -> None:
        """Answers everybody who waits; requests under way go on."""
        self.stopping.set()
        self.hub.stop()
        asyncio.get_running_loop().call_later(self.settings.stop_seconds, self.cut)

    def cut(self) -> None:
        """Whoever still waits for the store is told that it has not answered."""
        for budget in self.budgets:
            budget.cut()

    async def close(self) -> None:
        await self.hub.close()
        await self.gauges.close()
        self.cut()
        closings = [budget.close for budget in self.budgets]
        if self.duties is not None:
            closings.append(self.duties.close)
        await asyncio.gather(self.wake_ups.close(), *(asyncio.to_thread(close) for close in closings))
        await asyncio.to_thread(self.stores.close)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return (self.control, self.claims, self.writes, self.reads, self.tokens)


def make_plane(settings: ServeSettings, events: Events, board: Board | None = None) -> Plane:
    """Nothing is opened yet."""
    stores = Stores(settings)

    def budget(name: str, threads: int, timeout_seconds: float) -> Budget:
        return Budget(name, lambda: stores.open(threads, timeout_seconds), threads, events)

    def looking(name: str, threads: int, timeout_seconds: float) -> Budget:
        return Budget(name, lambda: stores.open_plain(threads, timeout_seconds), threads, events)

    threads = settings.threads
    control = budget("control", threads.control, settings.timing.timeout)
    claims = budget("claims", threads.claims, LONGEST_TIMEOUT_SECONDS)
    hub = Hub(claims, control, settings.poll_seconds)
    reads = looking("reads", threads.reads, SLOW_TIMEOUT_SECONDS)
    return Plane(
        settings=settings,
        events=events,
        control=control,
        claims=claims,
        writes=budget("writes", threads.writes, SLOW_TIMEOUT_SECONDS),
        reads=reads,
        tokens=looking("tokens", threads.tokens, LONGEST_TIMEOUT_SECONDS),
        hub=hub,
        batching=Batching(control),
        gauges=Gauges(reads, events),
        board=board or Board(version("holdfast")),
        wake_ups=WakeUps(settings, hub.ring, lambda: hub.waiting, events),
        duties=PeriodicDuties(settings, stores, events) if settings.duties else None,
        stores=stores,
        stopping=asyncio.Event(),
    )


async def get_plane(request: Request) -> Plane:
    plane = request.app.state.plane
    assert isinstance(plane, Plane)
    return plane


PlaneDep = Annotated[Plane, Depends(get_plane)]
