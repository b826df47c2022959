"""An event that costs nothing until somebody waits for it. Every job has two, and nearly no job waits."""

from __future__ import annotations

import threading

_making = threading.Lock()


class Flag:
    """As `threading.Event`, without `clear`. Who sets it looks for waiters after that, and who waits looks at it once
    more after it can be seen waiting: so nobody is missed."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if (event := self._event) is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        with _making:
            if self._event is None:
                self._event = threading.Event()
        return self._is_set or self._event.wait(timeout)
