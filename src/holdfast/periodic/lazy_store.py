"""A store that is opened when it is first needed, and tried again until it can be."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from holdfast.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from holdfast.ports import Store


class LazyStore:
    """Thread-safe. Whoever comes while it is being opened waits for that, and a failure is that of all of them: they
    do not queue up for a time-out each. The next caller tries again."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._opening: Future[Store] | None = None

    def __call__(self) -> Store:
        with self._lock:
            if self._store is not None:
                return self._store
            opening, is_ours = self._opening, self._opening is None
            if opening is None:
                opening = self._opening = Future()
        if is_ours:
            self._try(opening)
        return opening.result()

    @property
    def opened(self) -> Store | None:
        """The store if it is open: to look at it without opening it."""
        return self._store

    def close(self) -> None:
        """Does not wait for somebody who is just opening it: a store that does not answer must not hold up an end."""
        with self._lock:
            store, self._store, self._opening = self._store, None, None
        _close(store)

    def _try(self, opening: Future[Store]) -> None:
        try:
            store = self._open()
        except BaseException as error:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
            opening.set_exception(error)
            return
        with self._lock:
            is_wanted = self._opening is opening
            if is_wanted:
                self._store, self._opening = store, None
        if is_wanted:
            opening.set_result(store)
        else:
            opening.set_exception(StoreUnavailable("the store was closed while it was being opened"))
            _close(store)


def _close(store: Store | None) -> None:
    with contextlib.suppress(Exception):
        if store is not None:
            store.close()
