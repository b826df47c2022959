"""The receiver of wake-ups: one connection that listens, proves to itself that it hears, and mends itself.

A listener that hears nothing looks like a quiet one: a connection that is half open, a pooler that hands every
transaction another session, a server that is a replica. So it sends itself a probe at the start and every minute. If
that does not come back in time, or the connection breaks, its status is `degraded` and it connects anew, after a wait
that grows and is drawn by lot. Whoever is woken by it must poll as well; it is a hint.

Behind a pooler the probe alone proves nothing: it may be sent by way of the very session that happens to listen. So the
first question is which backend answers. Where that is not the one that the connection was told of at the start, it is
deaf, it does not leave a LISTEN behind in a session of others, and it looks again after minutes.

Everything on the connection is asynchronous: no call can block on a peer that stopped answering.
"""

from __future__ import annotations

import math
import random
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from enum import StrEnum

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from holdfast.transports.pg_notify import CHANNEL

PROBE = "probe:"
CLOSE_SECONDS = 0.5


class ListenerStatus(StrEnum):
    STARTING = "starting"
    LISTENING = "listening"
    DEGRADED = "degraded"
    OFF = "off"


class _Deaf(Exception):
    """It cannot hear itself."""


class _BehindPooler(_Deaf):
    """It would listen in a session that is not its own."""


class Listener:
    """`ring` is called from the listener's thread, once for every burst of notifications, and whenever it has just
    begun to listen: what was sent before that was not heard."""

    def __init__(
        self,
        conninfo: str,
        ring: Callable[[], None],
        *,
        changed: Callable[[ListenerStatus], None] = lambda _status: None,
        probe_every: float = 60.0,
        probe_within: float = 10.0,
        shortest_backoff: float = 1.0,
        longest_backoff: float = 30.0,
        pooler_pause: float = 300.0,
    ) -> None:
        self._conninfo = conninfo
        self._ring = ring
        self._changed = changed
        self._probe_every = probe_every
        self._probe_within = probe_within
        self._backoff = (shortest_backoff, longest_backoff)
        self._pooler_pause = pooler_pause
        self._status = ListenerStatus.STARTING
        self._faults = 0
        self._closing = threading.Event()
        self._woken, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)

    @property
    def status(self) -> ListenerStatus:
        return self._status

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns within half a second; a thread that is still connecting ends by itself."""
        self._closing.set()
        with suppress(OSError):  # the thread has ended, and its end of the pair with it
            self._wake.send(b"x")
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        else:
            self._woken.close()
        self._wake.close()
        self._become(ListenerStatus.OFF)

    def _become(self, status: ListenerStatus) -> None:
        if status is self._status or self._status is ListenerStatus.OFF:
            return
        self._status = status
        self._changed(status)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._connect_and_listen()
            except _BehindPooler:
                self._become(ListenerStatus.DEGRADED)
                self._closing.wait(random.uniform(0.5, 1.0) * self._pooler_pause)
            except Exception:  # whatever it was, the ear must not stay shut for it
                self._become(ListenerStatus.DEGRADED)
                self._closing.wait(self._pause())
        self._woken.close()

    def _pause(self) -> float:
        shortest, longest = self._backoff
        self._faults += 1
        return random.uniform(0.0, min(longest, shortest * 2.0 ** min(self._faults - 1, 30)))

    def _connect_and_listen(self) -> None:
        within = max(1, math.ceil(self._probe_within))
        # Not `with connection`: that would wait for the answer to a ROLLBACK.
        with closing(psycopg.connect(self._conninfo, autocommit=True, connect_timeout=within)) as connection:
            connection.pgconn.nonblocking = 1
            ear = _Ear(connection.pgconn)
            ear.send("SELECT pg_backend_pid()")
            if not self._listen_until(ear, time.monotonic() + self._probe_within, _Ear.knows_its_backend):
                return
            if ear.backend != connection.pgconn.backend_pid:
                raise _BehindPooler
            ear.send(f"LISTEN {CHANNEL}; {ear.new_probe()}")
            while self._listen_until(ear, time.monotonic() + self._probe_within, _Ear.has_heard_its_probe):
                self._heard_itself()
                if not self._listen_until(ear, time.monotonic() + self._probe_every):
                    return
                ear.send(ear.new_probe())

    def _listen_until(self, ear: _Ear, deadline: float, answered: Callable[[_Ear], bool] | None = None) -> bool:
        """Listen until the time is over or what was asked is answered; False when it is time to close."""
        while not self._closing.is_set():
            if answered is not None and answered(ear):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                if answered is not None:
                    raise _Deaf
                return True
            if self._something_arrived(ear, left) and ear.hear():
                self._ring()
        return False

    def _something_arrived(self, ear: _Ear, within: float) -> bool:
        waiting = select.poll()
        for descriptor in (ear.descriptor, self._woken.fileno()):
            waiting.register(descriptor, select.POLLIN)
        return any(descriptor == ear.descriptor for descriptor, _event in waiting.poll(math.ceil(within * 1000)))

    def _heard_itself(self) -> None:
        self._faults = 0
        if self._status is not ListenerStatus.LISTENING:
            self._become(ListenerStatus.LISTENING)
            self._ring()


class _Ear:
    """One connection, asked and listened to without ever blocking."""

    def __init__(self, connection: PGconn) -> None:
        self._connection = connection
        self._probe = ""
        self._heard_probe = False
        self.descriptor = connection.socket
        self.backend: int | None = None

    def knows_its_backend(self) -> bool:
        return self.backend is not None

    def has_heard_its_probe(self) -> bool:
        return self._heard_probe

    def new_probe(self) -> str:
        self._probe = PROBE + uuid.uuid4().hex
        self._heard_probe = False
        return f"NOTIFY {CHANNEL}, '{self._probe}'"

    def send(self, statement: str) -> None:
        self._connection.send_query(statement.encode())
        self._connection.flush()

    def hear(self) -> bool:
        """Take in what has arrived; True when there was a notification that is not somebody's probe."""
        self._connection.consume_input()
        self._take_results()  # first: libpq reads no further than a result that nobody has taken
        rung = False
        while notification := self._connection.notifies():
            payload = notification.extra.decode(errors="replace")
            self._heard_probe |= payload == self._probe
            rung |= not payload.startswith(PROBE)
        return rung

    def _take_results(self) -> None:
        while not self._connection.is_busy():
            result = self._connection.get_result()
            if result is None:
                return
            if result.status == ExecStatus.TUPLES_OK:
                self.backend = int(result.get_value(0, 0) or 0)
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
