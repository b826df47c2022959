"""What a running job says on the way: log lines in batches, progress at a bounded rate, all of it before its `done`."""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable
from threading import Event
from time import sleep
from typing import TYPE_CHECKING, Any

from holdfast.forks import fork_safe
from holdfast.runners.child import messages
from holdfast.tasks.turn import Turn

if TYPE_CHECKING:
    from holdfast.domain.artifacts import Artifact
    from holdfast.domain.logs import LogLine
    from holdfast.runners.child.link import Link

FLUSH_SECONDS = 0.1
FLUSH_LINES = 100


class Outbox:
    """Shared by all jobs of a runner: remembers who has something to say and sends it every 100 ms."""

    def __init__(self, link: Link) -> None:
        self.link = link
        # Held while sending: whoever gets it next knows that what was taken before is also written.
        self.lock = Turn()
        self._waiting: set[JobChannel] = set()
        self._something = fork_safe(Event())
        self._has_thread = False

    def mark(self, channel: JobChannel) -> None:
        """Called with the lock held."""
        self._waiting.add(channel)
        self._something.set()
        if not self._has_thread:
            self._has_thread = True
            start_new_thread(self._send_regularly, ())  # a job may have replaced `threading.Thread`

    def _send_regularly(self) -> None:
        while True:
            self._something.wait()
            sleep(FLUSH_SECONDS)
            with self.lock:
                self._something.clear()
                waiting, self._waiting = self._waiting, set()
                if data := b"".join(channel.take() for channel in waiting):
                    self.link.send(data)


class JobChannel:
    """One job's way to the engine. Any thread may call it; after the job's end nothing more is taken."""

    __slots__ = ("_is_closed", "_is_used", "_lease_id", "_lines", "_outbox", "_progress")

    def __init__(self, lease_id: str, outbox: Outbox) -> None:
        self._lease_id = lease_id
        self._outbox = outbox
        self._lines: list[LogLine] = []
        self._progress: dict[str, Any] | None = None
        self._is_used = False
        self._is_closed = False

    def progress(self, value: dict[str, Any]) -> None:
        if self._outbox.lock.is_mine:  # what it interrupted, or the job's end, sends it
            self._progress = value
            return
        with self._outbox.lock:
            if not self._is_closed:
                self._progress = value
                self._mark()

    def log(self, line: LogLine) -> None:
        if self._outbox.lock.is_mine:
            self._lines.append(line)
            return
        with self._outbox.lock:
            if self._is_closed:
                return
            self._lines.append(line)
            self._mark()
            if len(self._lines) >= FLUSH_LINES and not self._outbox.link.is_sending_here:
                self._outbox.link.send(self.take())

    def saved(self, name: str, artifact: Artifact | None) -> None:
        """At once, so that it is known however the job ends."""
        self._outbox.link.send(messages.saved(self._lease_id, name, artifact))

    def later(self, action: Callable[[], object]) -> bool:
        """True: a signal handler asks that has interrupted its own thread in sending; it is done right after that."""
        return self._outbox.link.turn.later(action)

    def completing(self) -> None:
        self._outbox.link.send(messages.frame("completing", id=self._lease_id))

    def close(self) -> bytes:
        """What has not been sent yet, to be written before `done`."""
        self._is_closed = True
        if not self._is_used:  # most jobs say nothing: no lock for them
            return b""
        with self._outbox.lock:
            return self.take()

    def take(self) -> bytes:
        """Called with the lock held."""
        data = b""
        if self._lines:
            data += messages.logged(self._lease_id, self._lines)
            self._lines = []
        if self._progress is not None:
            data += messages.frame("progress", id=self._lease_id, value=self._progress)
            self._progress = None
        return data

    def _mark(self) -> None:
        self._is_used = True
        self._outbox.mark(self)
