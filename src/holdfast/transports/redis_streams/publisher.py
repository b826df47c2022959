"""The sender: one thread for a process, so that no enqueue and no report waits for Redis.

Callers leave here what is to be offered and what is to be acknowledged, after their own commits. While Redis is away,
offers are dropped (the sweeper makes them again) and acknowledgements are kept, as many as fit; what does not fit is
put right by the sweeper too. Errors are swallowed: nothing that matters hangs on it.
"""

from __future__ import annotations

import atexit

# Imported for its side effect, which is refused once the process has begun to end; the client library, which the sender
# may import as late as that, imports it too.
import concurrent.futures.thread  # noqa: F401
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from holdfast.forks import after_fork
from holdfast.transports.redis_streams.link import RedisAway, RedisRefused
from holdfast.transports.redis_streams.streams import Streams

MOST_WAITING = 20_000
BATCH = 500
# A Redis that does not answer ends it sooner; to import the client library may take most of it.
FLUSH_SECONDS = 2.0

Offered = tuple[str, str, int]  # queue, job id, seq
Acknowledged = tuple[str, str, str]  # queue, message id, job id
Item = TypeVar("Item", Offered, Acknowledged)


class Publisher:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._changed = threading.Condition()
        self._offers: deque[Offered] = deque(maxlen=MOST_WAITING)
        self._acknowledged: deque[Acknowledged] = deque(maxlen=MOST_WAITING)
        self._sending = False
        self._closing = False
        self._thread: threading.Thread | None = None
        after_fork(self._after_fork)

    def offer(self, offers: Iterable[Offered]) -> None:
        """Returns at once and never fails."""
        self._leave(self._offers, offers)

    def acknowledge(self, messages: Iterable[Acknowledged]) -> None:
        self._leave(self._acknowledged, messages)

    def flush(self, seconds: float) -> bool:
        """Wait until everything was sent or dropped, for so long at most."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._offers or self._acknowledged or self._sending), seconds)

    def close(self) -> None:
        """Send what is left, for a bounded time, and end."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(FLUSH_SECONDS)

    def _after_fork(self) -> None:
        """Pending messages and the thread are the parent's."""
        self._changed = threading.Condition()
        self._offers.clear()
        self._acknowledged.clear()
        self._sending = False
        self._thread = None

    def _leave(self, waiting: deque[Item], items: Iterable[Item]) -> None:
        with self._changed:
            if self._closing:
                return
            waiting.extend(items)
            if waiting and (self._thread is None or not self._thread.is_alive()):
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="holdfast-publisher", daemon=True)
        self._thread.start()
        # A short process, `holdfast enqueue` say, is at its end before the thread has sent anything.
        atexit.register(self.close)

    def _run(self) -> None:
        while self._something_waits():
            if self._rests():
                continue
            offers, acknowledged = self._batch()
            try:
                self._send_acknowledged(acknowledged)
                self._send_offers(offers)
            except RedisAway:
                self._keep(acknowledged)
            finally:
                self._sent()

    def _something_waits(self) -> bool:
        """True once there is something to send; False when there is nothing more to come."""
        with self._changed:
            self._changed.wait_for(lambda: self._offers or self._acknowledged or self._closing)
            return bool(self._offers or self._acknowledged)

    def _rests(self) -> bool:
        """Redis is not to be asked yet: drop what need not be kept and wait, unless there is no time left."""
        seconds = self._streams.link.breaker.seconds_left
        if seconds <= 0.0:
            return False
        with self._changed:
            self._offers.clear()
            if self._closing:
                self._acknowledged.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing, seconds)
        return True

    def _batch(self) -> tuple[list[Offered], list[Acknowledged]]:
        with self._changed:
            self._sending = True
            return _taken(self._offers), _taken(self._acknowledged)

    def _send_acknowledged(self, messages: list[Acknowledged]) -> None:
        for queue, found in _by_queue(messages).items():
            with suppress(RedisRefused):
                self._streams.drop(queue, [(message_id, job_id) for _queue, message_id, job_id in found])

    def _send_offers(self, offers: list[Offered]) -> None:
        for queue, found in _by_queue(offers).items():
            with suppress(RedisRefused):
                self._streams.add(queue, [(job_id, seq) for _queue, job_id, seq in found])

    def _keep(self, messages: list[Acknowledged]) -> None:
        with self._changed:
            if not self._closing:
                self._acknowledged.extendleft(reversed(messages))

    def _sent(self) -> None:
        with self._changed:
            self._sending = False
            self._changed.notify_all()


def _taken(waiting: deque[Item]) -> list[Item]:
    return [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]


def _by_queue(items: Iterable[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item[0], []).append(item)
    return found
