"""Single keys from a terminal, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

_KEYS = {
    b"q": "quit",
    b"Q": "quit",
    b"p": "pause",
    b"P": "pause",
    b" ": "pause",
    b"\t": "next",
    b"\x1b[C": "next",
    b"\x1b[B": "next",
    b"\x1bOC": "next",
    b"\x1bOB": "next",
    b"\x1b[Z": "previous",
    b"\x1b[D": "previous",
    b"\x1b[A": "previous",
    b"\x1bOD": "previous",
    b"\x1bOA": "previous",
}


class Keyboard:
    """Where stdin is no terminal there are no keys. Ctrl-Z is off: who stops here leaves a screen that is not his."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._before: list[Any] = []
        self._pressed: deque[str] = deque()

    def __enter__(self) -> Self:
        try:
            import termios
            import tty

            if sys.stdin.isatty():
                descriptor = sys.stdin.fileno()
                self._before = termios.tcgetattr(descriptor)
                tty.setcbreak(descriptor)
                changed = termios.tcgetattr(descriptor)
                changed[6][termios.VSUSP] = b"\x00"
                termios.tcsetattr(descriptor, termios.TCSANOW, changed)
                self._descriptor = descriptor
        except (ImportError, OSError):  # no such thing on Windows; a terminal that is closing
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    @property
    def there(self) -> bool:
        return self._descriptor is not None

    def key(self, seconds: float) -> str | None:
        """What was pressed within so many seconds; None for nothing, or nothing that means anything."""
        if self._pressed:
            return self._pressed.popleft()
        if self._descriptor is None:
            time.sleep(seconds)
            return None
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return None
        pressed = os.read(self._descriptor, 64)
        if not pressed:
            self._descriptor = None  # the terminal is gone
            return "quit"
        self._pressed += _meanings(pressed)
        return self._pressed.popleft() if self._pressed else None


def _meanings(pressed: bytes) -> Iterator[str]:
    """Keys may arrive together; those with a name of several bytes begin with an escape."""
    while pressed:
        size = 3 if pressed[:1] == b"\x1b" else 1
        meaning = _KEYS.get(pressed[:size])
        if meaning is not None:
            yield meaning
        pressed = pressed[size:]
