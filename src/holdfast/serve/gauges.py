"""One look at the whole fleet for the whole server, however many ask: metrics, pages, streams.

It is renewed when somebody asks and the last look is older than a second and than ten times what it took: so looking
costs a tenth of one connection at most, also where a look takes seconds. One look is under way at a time. Whoever asks
meanwhile gets the last one: nobody waits for a count of a million jobs but the very first, and whoever comes when
nobody has asked for minutes. Where a look is quick (most are) it is waited for, so that what is shown is of now.

A store that is away is told to whoever asks, as the budget tells it; it is tried again no sooner than after a second,
and nobody waits for that either.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.domain.errors import SchemaMismatch, StoreUnavailable
from holdfast.domain.events import Events, Problem
from holdfast.domain.views import QueueView, SourceView, StateCount, Stuck, WorkerView
from holdfast.ports import Store
from holdfast.serve.budget import Budget
from holdfast.serve.problems import Refused
from holdfast.stores.inspection.fleet import facts
from holdfast.stores.inspection.postgres import TableHealth
from holdfast.stores.sql_store import SqlStore

SHORTEST_SECONDS = 1.0
SHARE = 10  # times as long as it took, before the next
QUICK_SECONDS = 0.05  # that anybody waits for the next look, rather than be shown the last one
OLDEST_SECONDS = 300.0  # what is older says nothing about now
HANGING_SECONDS = 10.0
RENEWED_SECONDS = 1.0
STUCK_GROUPS = 200
MOST_COUNTED = 10_000  # jobs of each queue and state


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNow:
    """`taken_at` is by the store's clock, as is every time in it. Counts of `states`, and what waits for a source, may
    be bounded: they say so themselves (`at_least`)."""

    taken_at: datetime
    queues: tuple[QueueView, ...]
    states: tuple[StateCount, ...]
    workers: tuple[WorkerView, ...]
    sources: tuple[SourceView, ...]
    stuck: tuple[Stuck, ...]  # groups
    tables: tuple[TableHealth, ...]  # none on SQLite
    duties: dict[str, float]  # seconds since each was last done
    oldest_snapshot_seconds: float | None  # None on SQLite
    took_seconds: float
    taken: float = field(default_factory=time.monotonic)  # by this process's own clock

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.taken


def look(store: Store) -> FleetNow:
    assert isinstance(store, SqlStore)
    began = time.monotonic()
    queues, states, workers = store.queues(), store.state_counts(most=MOST_COUNTED), store.workers()
    sources, stuck = store.sources(), store.stuck(STUCK_GROUPS)
    found = facts(store.database)
    return FleetNow(
        taken_at=found.now,
        queues=tuple(queues),
        states=tuple(states),
        workers=tuple(workers),
        sources=tuple(sources),
        stuck=tuple(stuck),
        tables=found.tables,
        duties=found.duties,
        oldest_snapshot_seconds=found.oldest_snapshot_seconds,
        took_seconds=time.monotonic() - began,
    )


class Gauges:
    """In the server's loop."""

    def __init__(self, reads: Budget, events: Events) -> None:
        self._reads = reads
        self._events = events
        self._last: FleetNow | None = None
        self._failure: Exception | None = None
        self._failed_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._began_at = 0.0

    @property
    def hangs(self) -> bool:
        """A look has been under way for so long that its store must be taken for away."""
        return self._is_looking and time.monotonic() - self._began_at > HANGING_SECONDS

    async def now(self) -> FleetNow:
        """The fleet as it is, or was a moment ago. A store that is away raises as a call of the budget does."""
        if self._is_due():
            self.begin()
        looking = self._looking
        if looking is not None and not looking.done():
            await asyncio.wait((looking,), timeout=self._patience())
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # else it would grow with everybody who is told
        if self._last is None:
            raise StoreUnavailable("the control plane stops, and the store has not answered")
        return self._last

    async def renew(self) -> None:
        """Wait for a look that began after this was asked: something was changed, and whoever did it is to see that."""
        for _ in range(2 if self._is_looking else 1):
            self.begin()
            assert self._looking is not None
            await asyncio.wait((self._looking,), timeout=RENEWED_SECONDS)

    def _patience(self) -> float | None:
        """How long whoever asks waits for the look that is under way; None: until it is over."""
        last = self._last
        if last is None:
            return None if self._failure is None else QUICK_SECONDS
        if last.age_seconds > OLDEST_SECONDS:
            return None
        return QUICK_SECONDS if last.took_seconds <= QUICK_SECONDS else 0.0

    def begin(self) -> None:
        """Look now, and wait for nothing; unless somebody looks already."""
        if not self._is_looking:
            self._began_at = time.monotonic()
            self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def _is_due(self) -> bool:
        if self._failure is not None:
            return time.monotonic() - self._failed_at >= SHORTEST_SECONDS
        last = self._last
        return last is None or last.age_seconds >= max(SHORTEST_SECONDS, SHARE * last.took_seconds)

    async def _look(self) -> None:
        try:
            self._last, self._failure = await self._reads.call(look), None
        except Exception as error:
            if not isinstance(error, StoreUnavailable | SchemaMismatch | Refused) and self._failure is None:
                stack = "".join(traceback.format_exception(error))
                self._events.emit(Problem("looking at the fleet", f"{type(error).__name__}: {error}", stack))
            self._last, self._failure, self._failed_at = None, error, time.monotonic()
