"""A budget: some threads, and a store of their own with as many connections.

The server's loop never waits for the store itself. What one budget has under way cannot hold up another's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.events import Events, StoreBack, StoreFailed
from holdfast.periodic.lazy_store import LazyStore
from holdfast.ports import Store
from holdfast.serve.problems import busy

Answer = TypeVar("Answer")

# Calls that wait for a thread: more than that would only be answered after their clients have given up.
MOST_WAITING = 2_000


class Budget:
    """That the store is away is told once, and once that it is back."""

    def __init__(self, name: str, open_store: Callable[[], Store], threads: int, events: Events) -> None:
        self.name = name
        self.threads = threads
        self._store = LazyStore(open_store)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"holdfast-{name}")
        self._events = events
        self._waiting = 0
        self._away_since: float | None = None

    @property
    def waiting(self) -> int:
        """Calls that are under way or wait for a thread."""
        return self._waiting

    async def call(self, verb: Callable[[Store], Answer]) -> Answer:
        if self._waiting >= MOST_WAITING:
            raise busy(f"{self._waiting:,} requests already wait for the store; ask again in a moment")
        self._waiting += 1
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, lambda: verb(self._store()))
        except StoreUnavailable as error:
            self._failed(error)
            raise
        finally:
            self._waiting -= 1
        self._worked()
        return answer

    def _failed(self, error: StoreUnavailable) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._events.emit(StoreFailed(self.name, str(error)))

    def _worked(self) -> None:
        if self._away_since is not None:
            self._events.emit(StoreBack(self.name, time.monotonic() - self._away_since))
            self._away_since = None

    def close(self) -> None:
        """What has not begun never will; what is under way ends with its connection."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()
