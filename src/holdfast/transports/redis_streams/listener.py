"""The ear: a thread that hears when messages were added, and wakes who waits for work.

It is a hint. A listener that hears nothing looks like a quiet one, so it asks for an answer now and then; if none
comes, or the connection breaks, its status is `degraded` and it connects anew, after a wait that grows and is drawn by
lot.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from holdfast.transports.redis_streams.link import connect
from holdfast.transports.redis_streams.options import Names, StreamOptions

CLOSE_SECONDS = 1.0
SLICE_SECONDS = 0.5  # how long it takes at most until it notices that it is to end


class _Deaf(Exception):
    """It was asked for an answer, and none came."""


class StreamListener:
    """`ring` is called in the listener's thread, for every announcement and whenever it has just begun to listen."""

    def __init__(
        self,
        options: StreamOptions,
        ring: Callable[[], None],
        *,
        changed: Callable[[str], None] = lambda _status: None,
        probe_every: float = 20.0,
        probe_within: float = 5.0,
        longest_backoff: float = 10.0,
    ) -> None:
        self._options = options
        self._channel = Names(options.prefix).wake
        self._ring = ring
        self._changed = changed
        self._probe_every = probe_every
        self._probe_within = probe_within
        self._longest_backoff = longest_backoff
        self._status = "starting"
        self._faults = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-stream-listener", daemon=True)

    @property
    def status(self) -> str:
        return self._status

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns within a second; a thread that is still connecting ends by itself."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        self._become("off")

    def _become(self, status: str) -> None:
        if status != self._status and self._status != "off":
            self._status = status
            self._changed(status)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._connect_and_listen()
            except Exception:  # whatever it was, the ear must not stay shut for it
                self._become("degraded")
                self._faults += 1
                pause = min(self._longest_backoff, 0.25 * 2.0 ** min(self._faults - 1, 10))
                self._closing.wait(random.uniform(0.25, 1.0) * pause)

    def _connect_and_listen(self) -> None:
        # Room to connect: nobody waits for this thread.
        client: Any = connect(self._options.url, max(self._options.timeout_seconds, 1.0))
        with closing(client), closing(client.pubsub()) as ear:
            ear.subscribe(self._channel)
            if not self._hear_until(ear, time.monotonic() + self._probe_within, "subscribe"):
                return
            self._faults = 0
            self._become("listening")
            self._ring()
            while self._hear_until(ear, time.monotonic() + self._probe_every):
                ear.ping()
                if not self._hear_until(ear, time.monotonic() + self._probe_within, "pong"):
                    return

    def _hear_until(self, ear: Any, deadline: float, answer: str | None = None) -> bool:
        """Listen until the time is over or the answer has come; False when it is time to end."""
        while not self._closing.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                if answer is not None:
                    raise _Deaf
                return True
            heard = ear.get_message(timeout=min(left, SLICE_SECONDS))
            kind = None if heard is None else heard["type"]
            if kind == "message":
                self._ring()
            elif kind is not None and kind == answer:
                return True
        return False
