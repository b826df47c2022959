"""A store that is opened when it is first needed, and tried again until it can be."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from holdfast.ports import Store

CLOSE_SECONDS = 1.0


class LazyStore:
    """Thread-safe; a failure to open is the caller's to see, and the next caller tries again."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._lock = threading.Lock()
        self._store: Store | None = None

    def __call__(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def close(self) -> None:
        """Does not wait long for somebody who is just opening it: that happens at the very end, and a store that does
        not answer must not hold it up."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            with contextlib.suppress(Exception):
                if self._store is not None:
                    self._store.close()
            self._store = None
            self._lock.release()
