"""One descriptor on which everything that is not a runner wakes the supervisor: signals, desks, notifications."""

from __future__ import annotations

import contextlib
import signal
import socket


class Bell:
    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        """From any thread. A bell that is full has been rung already."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._theirs.send(b"\0")

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ours.recv(4096):
                pass

    def rung_by_signals(self) -> None:
        signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        with contextlib.suppress(ValueError):  # not in the main thread: it was never set
            signal.set_wakeup_fd(-1)
        self._ours.close()
        self._theirs.close()
