"""A lock for code that signal handlers may call: one that has interrupted its own thread must not wait for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Turn:
    """A lock that knows its holder: a signal handler or a finaliser that speaks may have interrupted the very thread
    that holds it. What it wants to do then is done when that thread is through."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # for the instants in which the holder is not written down
        self._holder: int | None = None
        self._later: list[Callable[[], object]] = []

    @property
    def is_mine(self) -> bool:
        return self._holder == threading.get_ident()

    def later(self, action: Callable[[], object]) -> bool:
        """False: the turn is not this thread's, so it may go ahead and wait for it."""
        if not self.is_mine:
            return False
        self._later.append(action)
        return True

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._holder = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        self._holder = None  # first: from here on nothing is put off any more
        later: list[Callable[[], object]] = []
        if self._later:
            later, self._later = self._later, later
        self._lock.release()
        for action in later:
            action()
