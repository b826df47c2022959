"""The runner's end of the socket pair: frames out under a lock, frames in until the supervisor is gone."""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from os import _exit, getpid

from holdfast.forks import after_fork
from holdfast.runners.descendants import descendants, kill_trees
from holdfast.runners.frames import Decoder, Frame
from holdfast.tasks.turn import Turn

_CHUNK = 256 * 1024


class Link:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        line = socket.socket(fileno=descriptor)
        # Bound before the app is imported: user code may replace the methods of all sockets.
        self._receive, self._send_all, self._close = line.recv, line.sendall, line.close
        self.turn = Turn()
        self._is_open = True
        after_fork(self._after_fork)

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
                self._send_all(data)
            except OSError:
                leave_nothing()

    def listen(self, handle: Callable[[Frame], None]) -> None:
        """Run in a thread of its own; does not return. A runner that reads no more must not go on: its supervisor would
        renew the leases of jobs that never start."""
        decoder = Decoder()
        with ending_process():
            with contextlib.suppress(OSError):
                while not decoder.is_broken and (data := self._receive(_CHUNK)):
                    for frame in decoder.feed(data):
                        handle(frame)
            leave_nothing()

    def _after_fork(self) -> None:
        self._is_open = False
        self.turn = Turn()  # without what another thread has put off
        self._close()


@contextlib.contextmanager
def ending_process() -> Iterator[None]:
    """For threads that a runner cannot do without: an exception ends the process, which the supervisor notices."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        leave_nothing()


def leave_nothing() -> None:
    """End at once, with everything that was started here: the supervisor is gone, or cannot reach us any more."""
    try:
        kill_trees(descendants(getpid()))
    finally:
        _exit(1)
