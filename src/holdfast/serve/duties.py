"""The periodic duties, in a thread of the control plane: reap, fire schedules, retention and the rest of the upkeep.

So a fleet that only speaks HTTP needs nothing else to run. Each of them is won by one process a period, so that any
number of control planes and workers may do them side by side.
"""

from __future__ import annotations

import threading
import time

from holdfast.domain.events import Events
from holdfast.maintenance.chores import Chore
from holdfast.periodic.duties import Duties
from holdfast.periodic.fleet import fleet_chores
from holdfast.periodic.lazy_store import LazyStore
from holdfast.periodic.part import Part
from holdfast.periodic.retrying import Retrying
from holdfast.periodic.upkeep import Upkeep
from holdfast.ports import Store
from holdfast.serve.options import ServeSettings
from holdfast.serve.stores import SLOW_TIMEOUT_SECONDS, Stores
from holdfast.wiring.sql import artifacts_root

LONGEST_SLEEP_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0


class PeriodicDuties:
    """The duties and the upkeep have a connection each."""

    def __init__(self, settings: ServeSettings, stores: Stores, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._stores = [
            LazyStore(lambda: stores.open(1, SLOW_TIMEOUT_SECONDS)),
            LazyStore(lambda: stores.open_plain(1, SLOW_TIMEOUT_SECONDS)),
        ]
        self._rung = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-duties", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Does not wait for a statement that is under way: it ends with its connection."""
        self._closing.set()
        self._rung.set()
        self._thread.join(LONGEST_SLEEP_SECONDS)
        for store in self._stores:
            store.close()

    def _run(self) -> None:
        duties, upkeep = self._duties(), self._upkeep()
        parts: list[Part] = [duties, upkeep]
        while not self._closing.is_set():
            self._rung.clear()
            now = time.monotonic()
            for part in parts:
                part.step(now)
            wake_at = min(part.wake_at() for part in parts)
            self._rung.wait(max(0.0, min(wake_at - time.monotonic(), LONGEST_SLEEP_SECONDS)))
        duties.close()
        upkeep.close()

    def _duties(self) -> Duties:
        settings = self._settings
        return Duties(
            self._stores[0],
            settings.name,
            lambda: settings.timing,
            self._events,
            self._rung.set,
            tasks=list,
            row=lambda: None,
            retrying=Retrying("duties", self._events, LONGEST_RETRY_SECONDS),
            lease_seconds=settings.timing.lease,
        )

    def _upkeep(self) -> Upkeep:
        settings = self._settings

        def chores(store: Store) -> list[Chore]:
            location = settings.artifacts_url
            root = None if location is None else artifacts_root(location, store.store_id())
            return fleet_chores(
                store,
                holder=settings.name,
                database_url=settings.database_url,
                upkeep_seconds=settings.upkeep_seconds,
                artifacts=root,
                rq_url=settings.rq_url,
                rq_serializer=settings.rq_serializer,
                redis=settings.redis,
            )

        return Upkeep(
            self._stores[1],
            chores,
            settings.name,
            self._events,
            self._rung.set,
            lambda: not self._closing.is_set(),
            Retrying("upkeep", self._events, LONGEST_RETRY_SECONDS),
        )
