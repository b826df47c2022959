"""A lock for code that signal handlers may call: one that has interrupted its own thread must not wait for itself."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Self

from holdfast.forks import fork_safe


class Turn:
    """A lock that knows its holder: a signal handler or a finaliser that speaks may have interrupted the very thread
    that holds it. What it wants to do then is done when that thread is through.

    The lock itself is asked for its owner. Written down beside it, the owner would be unknown for an instant after the
    lock is had and before it is given back: a handler that came just then would take the turn as well, wait for an
    answer, and whoever brings that answer would wait for the turn.
    """

    def __init__(self) -> None:
        self._lock = fork_safe(RLock())
        self._later: list[Callable[[], object]] = []

    @property
    def is_mine(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # as threading.Condition asks

    def later(self, action: Callable[[], object]) -> bool:
        """False: the turn is not this thread's, so it may go ahead and wait for it."""
        if not self.is_mine:
            return False
        self._later.append(action)
        return True

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        # Looked at only now: until the lock was given back, something could be put off.
        while self._later and not self.is_mine:
            later, self._later = self._later, []
            for action in later:
                action()
