"""The sender of wake-ups: NOTIFY on one channel with an empty payload, outside everybody's transaction, coalesced.

A commit that carries a notification takes a lock of the whole server, so writers that notify in their transactions
queue up behind each other. Ours never do: the store pokes this after its commit. The first word is sent at once, then
at most so many a second, and always one after the last poke. Where several pokes come within a pause, the next pause is
twice as long: workers that have a queue of work before them need not be told of every job. It is a hint; errors are
swallowed.

Who pokes while nothing is under way lets the word go by itself, if there is a connection at hand to which it can be
written without waiting for anything: a thread that has to be woken for it gets its turn only when the one that pokes
rests. All waiting is done by a thread.
"""

from __future__ import annotations

import atexit
import random
import threading
from collections.abc import Callable

from holdfast.forks import after_fork, leak

CHANNEL = "holdfast"
NOTIFY = f"NOTIFY {CHANNEL}"

PER_SECOND = 200.0
IN_A_FLOOD_PER_SECOND = 20.0
FLUSH_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0


class Notifier:
    """`begin` writes the word, waits for nothing, and answers how to wait for what comes of it, or None: not now."""

    def __init__(
        self,
        send: Callable[[], None],
        begin: Callable[[], Callable[[], None] | None] = lambda: None,
        *,
        per_second: float = PER_SECOND,
        in_a_flood_per_second: float = IN_A_FLOOD_PER_SECOND,
    ) -> None:
        self._send = send
        self._begin = begin
        self._shortest_pause, self._longest_pause = 1.0 / per_second, 1.0 / in_a_flood_per_second
        self._pause = self._shortest_pause
        self._changed = threading.Condition()
        self._pokes = 0
        self._is_waiting = False  # the thread, for something to do
        self._finish: Callable[[], None] | None = None  # of a word that is on its way
        self._closing = False
        self._thread: threading.Thread | None = None
        after_fork(self._after_fork)

    def poke(self) -> None:
        """There may be something to claim. Returns at once and never fails."""
        with self._changed:
            if self._closing:
                return
            self._pokes += 1
            if self._thread is None or not self._thread.is_alive():
                self._start()
            if self._is_waiting:  # else it looks afterwards; to be woken for every poke would cost it and us more
                self._is_waiting = False
                self._changed.notify()  # now: should we be interrupted in what follows, it sends
                self._finish = self._begun()
                if self._finish is not None:
                    self._pokes = 0

    def close(self) -> None:
        """Send what is pending, for half a second at most, and end."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(FLUSH_SECONDS)

    def _after_fork(self) -> None:
        """Pending notifications and the thread are the parent's."""
        leak(self._finish)
        self._changed = threading.Condition()
        self._pokes, self._finish, self._thread = 0, None, None
        self._is_waiting = False

    def _begun(self) -> Callable[[], None] | None:
        try:
            return self._begin()
        except Exception:  # the thread tries in its own way
            return None

    def _start(self) -> None:
        self._is_waiting = False
        self._finish = None
        self._thread = threading.Thread(target=self._run, name="holdfast-notifier", daemon=True)
        self._thread.start()
        # A short process, `holdfast enqueue` say, is at its end before the thread has sent anything.
        atexit.register(self.close)

    def _run(self) -> None:
        faults = 0
        while (say := self._next()) is not None:
            try:
                say()
                faults = 0
            except Exception:
                faults += 1
            self._rest(self._pause if faults == 0 else _backoff(faults))

    def _next(self) -> Callable[[], None] | None:
        """How to say the next word, or the rest of it; None when there is nothing more to come."""
        with self._changed:
            self._is_waiting = not self._pokes
            self._changed.wait_for(lambda: self._pokes or self._finish or self._closing)
            self._is_waiting = False
            if self._finish is not None:
                finish, self._finish = self._finish, None
                self._pause = self._shortest_pause
                return finish
            # Taken back before it is sent: a poke that comes meanwhile is sent after it.
            pokes, self._pokes = self._pokes, 0
            self._pause = min(2 * self._pause, self._longest_pause) if pokes > 1 else self._shortest_pause
            return self._send if pokes else None

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)


def _backoff(faults: int) -> float:
    return random.uniform(0.0, min(LONGEST_BACKOFF_SECONDS, 2.0 ** min(faults, 10)))
