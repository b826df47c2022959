"""A bound on every use of a connection, also against a peer that acknowledges everything and answers nothing.

TCP's own timeouts notice a dead peer, not a proxy that went on listening, and the server's notice nothing that does not
reach it. So one thread looks at who has had a connection for too long and shuts its socket down: the blocked call then
fails, as it would with a server that went away. To arm and to disarm is one write to a dictionary, because every verb
does both.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import psycopg

from holdfast.forks import after_fork, fork_safe, leak

_SHORTEST_ROUND = 0.02


class Watchdog:
    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._deadlines: dict[Any, float] = {}
        self._shooting = fork_safe(threading.Lock())
        self._stop = fork_safe(threading.Event())
        self._thread: threading.Thread | None = None
        after_fork(self._after_fork)

    def start(self) -> None:
        """Start the thread, unless it runs. Called for every new connection."""
        with self._shooting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._patrol, name="holdfast-watchdog", daemon=True)
                self._thread.start()

    def arm(self, connection: Any) -> None:
        self._deadlines[connection] = deadline = time.monotonic() + self._timeout
        if self._stop.is_set():
            self._shoot(connection, deadline)

    def is_armed(self, connection: Any) -> bool:
        """False also after the watchdog has shut the connection down."""
        return connection in self._deadlines

    def disarm(self, connection: Any) -> None:
        if self._deadlines.pop(connection, None) is None:
            # It is being shot at this moment: its descriptor must not be closed, and given to another, before that.
            with self._shooting:
                pass

    def close(self) -> None:
        """Nobody looks after this: so whatever is still in use ends now, and its user with it."""
        self._stop.set()
        for connection, deadline in list(self._deadlines.items()):
            self._shoot(connection, deadline)

    def _after_fork(self) -> None:
        """The thread and the connections are the parent's."""
        leak(self._deadlines)
        self._deadlines = {}
        self._thread = None

    def _patrol(self) -> None:
        while not self._stop.wait(max(self._timeout / 8, _SHORTEST_ROUND)):
            now = time.monotonic()
            for connection, deadline in list(self._deadlines.items()):
                if deadline < now:
                    self._shoot(connection, deadline)

    def _shoot(self, connection: Any, deadline: float) -> None:
        with self._shooting:
            if self._deadlines.get(connection) == deadline and self._deadlines.pop(connection, None) == deadline:
                shut_down(connection)


def shut_down(connection: Any) -> None:
    """End a connection that another thread is blocked on. libpq may have closed it a moment ago, and its descriptor
    may be somebody else's by now: hence the second look."""
    try:
        descriptor = connection.fileno()
        line = socket.socket(fileno=os.dup(descriptor))
    except (OSError, psycopg.Error):
        return
    with line:
        try:
            if connection.fileno() == descriptor:
                line.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            return
