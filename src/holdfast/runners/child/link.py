"""The runner's end of the socket pair: frames out under a lock, frames in until the supervisor is gone."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from holdfast.runners.descendants import descendants, kill_trees
from holdfast.runners.frames import Decoder, Frame
from holdfast.tasks.turn import Turn

_CHUNK = 256 * 1024


class Link:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self.turn = Turn()
        self._is_open = True
        os.register_at_fork(after_in_child=self._drop)

    @property
    def is_open(self) -> bool:
        """False in a process that user code has forked: it is not the runner and must not speak for it."""
        return self._is_open

    @property
    def is_sending_here(self) -> bool:
        """True for a signal handler that has interrupted its own thread in `send`."""
        return self.turn.is_mine

    def send(self, data: bytes) -> None:
        """Whole frames only: several threads write, and a signal handler may have interrupted one in the middle."""
        if not self._is_open or self.turn.later(lambda: self.send(data)):
            return
        with self.turn:
            try:
                self._socket.sendall(data)
            except OSError:
                leave_nothing()

    def listen(self, handle: Callable[[Frame], None]) -> None:
        """Run in a thread of its own; does not return. Without a supervisor there is nobody to work for."""
        decoder = Decoder()
        with contextlib.suppress(OSError):
            while data := self._socket.recv(_CHUNK):
                for frame in decoder.feed(data):
                    handle(frame)
        leave_nothing()

    def _drop(self) -> None:
        self._is_open = False
        self.turn = Turn()  # another thread may have held it at the time of the fork
        self._socket.close()


def leave_nothing() -> None:
    """The supervisor is gone: end at once, with everything that was started here."""
    kill_trees(descendants(os.getpid()))
    os._exit(1)
