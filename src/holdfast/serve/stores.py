"""How a control plane opens its stores: each with connections of its own, all of them with one way to Redis."""

from __future__ import annotations

from holdfast.ports import Store
from holdfast.serve.options import ServeSettings
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.redis import open_transport, streamed
from holdfast.wiring.sql import open_store

# For one statement that nobody's lease depends on: a long list, a large batch, a step of upkeep.
SLOW_TIMEOUT_SECONDS = 60.0


class Stores:
    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._transport = None if settings.redis is None else open_transport(settings.redis)

    def open(self, connections: int, timeout_seconds: float) -> Store:
        """One whose jobs also travel in messages, where there is a Redis. A claim that finds no message looks into the
        database every time: whoever is told that there is nothing can rely on it."""
        store = self._opened(connections, timeout_seconds, self._settings.notify)
        return store if self._transport is None else streamed(store, self._transport)

    def open_plain(self, connections: int, timeout_seconds: float) -> SqlStore:
        """For what makes no job claimable: it has nobody to wake."""
        return self._opened(connections, timeout_seconds, notify=False)

    def _opened(self, connections: int, timeout_seconds: float, notify: bool) -> SqlStore:
        return open_store(
            self._settings.database_url, timeout_seconds=timeout_seconds, pool_size=connections, notify=notify
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
