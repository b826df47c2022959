"""A budget: some threads, and a store of their own with as many connections.

The server's loop never waits for the store itself. What one budget has under way cannot hold up another's, nor the end
of the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.domain.errors import RequestBusy, StoreUnavailable
from holdfast.domain.events import Events, StoreBack, StoreFailed
from holdfast.periodic.lazy_store import LazyStore
from holdfast.ports import Store
from holdfast.serve.problems import busy
from holdfast.serve.threads import DaemonThreads
from holdfast.stores.pool_use import pool_use

Answer = TypeVar("Answer")

# Calls that wait for a thread: more than that would only be answered after their clients have given up.
MOST_WAITING = 2_000


class Budget:
    """That the store is away is told once, and once that it is back."""

    def __init__(self, name: str, open_store: Callable[[], Store], threads: int, events: Events) -> None:
        self.name = name
        self.threads = threads
        self._store = LazyStore(open_store)
        self._threads = DaemonThreads(f"holdfast-{name}", threads)
        self._calls: set[asyncio.Future[Any]] = set()
        self._is_cut = False
        self._events = events
        self._waiting = 0
        self._away_since: float | None = None

    @property
    def busy(self) -> int:
        """Threads that are at work."""
        return self._threads.busy

    @property
    def queued(self) -> int:
        """Calls that wait for a thread."""
        return self._threads.waiting

    def pool_use(self) -> tuple[int, int] | None:
        """The connections it may keep, and those in use; None as long as its store is not open."""
        return pool_use(self._store.opened)

    @property
    def waiting(self) -> int:
        """Calls that are under way or wait for a thread."""
        return self._waiting

    async def call(self, verb: Callable[[Store], Answer]) -> Answer:
        if self._is_cut:
            raise _stopping()
        if self._waiting >= MOST_WAITING:
            raise busy(f"{self._waiting:,} requests already wait for the store; ask again in a moment")
        self._waiting += 1
        try:
            answer = await self._begin(verb)
        except RequestBusy:
            raise
        except StoreUnavailable as error:
            if not self._is_cut:
                self._failed(error)
            raise
        finally:
            self._waiting -= 1
        self._worked()
        return answer

    def _begin(self, verb: Callable[[Store], Answer]) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)

        def tell(answer: Answer | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answer)  # type: ignore[arg-type]

        def run() -> None:
            if future.done():  # nobody waits for it any more
                return
            answer, failure = None, None
            try:
                answer = verb(self._store())
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the loop has ended since
                loop.call_soon_threadsafe(tell, answer, failure)

        self._threads.submit(run)
        return future

    def _failed(self, error: StoreUnavailable) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._events.emit(StoreFailed(self.name, str(error)))

    def _worked(self) -> None:
        if self._away_since is not None:
            self._events.emit(StoreBack(self.name, time.monotonic() - self._away_since))
            self._away_since = None

    def cut(self) -> None:
        """In the server's loop: nobody waits for the store any longer, and nothing more is asked of it."""
        self._is_cut = True
        for future in list(self._calls):
            if not future.done():
                future.set_exception(_stopping())

    def close(self) -> None:
        """After `cut`. What has not begun never will; what is under way ends with its connection."""
        self._threads.close()
        self._store.close()


def _stopping() -> StoreUnavailable:
    return StoreUnavailable("the control plane stops, and the store has not answered")
