"""One connection through the proxy: two ends, and what goes from one to the other, all on the proxy's loop.

A line is one of three: open (it carries), held (nothing is read, so that the kernel keeps what both sides send, and
nothing is lost when it is opened again), or silent (everything is read and thrown away, for good: it lost bytes, so it
can never speak again, and it tells neither side what the other did, its death included). Buffers are bounded: an end
that cannot write, or has too much waiting to be written, stops the other one from reading.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from holdfast.torture.proxy_answers import Answers, Exchanges
from holdfast.torture.replies import Recogniser, Replies

WAITING_BYTES = 256 * 1024
AT_ONCE = struct.pack("ii", 1, 0)  # to close is to reset


@dataclass(slots=True)
class Hits:
    """How much each fault has really hit since the proxy began."""

    reset: int = 0  # connections
    swallowed: int = 0  # connections that lost what was sent on them, or were held up
    swallowed_bytes: int = 0
    slowed: int = 0  # connections that had at least one chunk delayed
    slowed_chunks: int = 0
    refused: int = 0  # connections
    cut: int = 0  # replies
    answered: int = 0  # HTTP requests that the proxy answered itself
    closed: int = 0  # connections that were idle


@dataclass(frozen=True, slots=True)
class Slowness:
    seconds: float
    jitter: float
    chance: float

    def delay(self, chosen: random.Random) -> float:
        return self.seconds + chosen.uniform(0.0, self.jitter) if chosen.random() < self.chance else 0.0


@dataclass(slots=True)
class Faults:
    """What is wrong with the way just now, for all its lines."""

    chosen: random.Random
    swallows: bool = False
    holds: bool = False
    refuses: bool = False
    slowness: Slowness | None = None
    cuts: int = 0  # replies still to be cut
    replies: Replies | None = None
    answers: Answers | None = None
    hits: Hits = field(default_factory=Hits)


def reset(transport: asyncio.Transport) -> None:
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()


class End(asyncio.Protocol):
    """One side of a line: what is read here is heard by the line, and what waits here is on its way out."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.transport: asyncio.Transport | None = None
        self.is_over = False  # it has said its last word
        self._is_choked = False
        self._waiting: deque[tuple[float, bytes | None]] = deque()  # None is the end
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        return self._is_choked or self._waiting_bytes > WAITING_BYTES

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._line.made(self)

    def data_received(self, data: bytes) -> None:
        self._line.heard(self, data)

    def eof_received(self) -> bool:
        self._line.heard_the_end(self)
        return True  # what the other side says is still passed on

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._forget_waiting()
        self._line.lost(self, error)

    def pause_writing(self) -> None:
        self._is_choked = True
        self._line.regulate()

    def resume_writing(self) -> None:
        self._is_choked = False
        self._line.regulate()

    def listen(self, wanted: bool) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def send(self, data: bytes | None, delay: float) -> None:
        """Never before what was sent earlier."""
        if not self._waiting and delay <= 0.0:
            self._write(data)
            return
        now = asyncio.get_running_loop().time()
        last = self._waiting[-1][0] if self._waiting else now
        self._waiting.append((max(last, now + delay), data))
        self._waiting_bytes += len(data or b"")
        self._wait()
        self._line.regulate()

    def send_all(self) -> None:
        """What waits has waited enough."""
        self._waiting = deque((0.0, data) for _at, data in self._waiting)
        self._release()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        if self.transport is not None:
            reset(self.transport)

    def _wait(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._release)

    def _release(self) -> None:
        self._stop_timer()
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0][0] <= now:
            _at, data = self._waiting.popleft()
            self._waiting_bytes -= len(data or b"")
            self._write(data)
        self._wait()
        self._line.regulate()

    def _write(self, data: bytes | None) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if data is not None:
            self.transport.write(data)
        else:
            with suppress(OSError):  # this side has reset it, and the loop has not heard of that yet
                self.transport.write_eof()
            self._line.told_the_end()

    def _forget_waiting(self) -> None:
        self._stop_timer()
        self._waiting.clear()
        self._waiting_bytes = 0

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Line:
    def __init__(self, faults: Faults, lines: set[Line]) -> None:
        self._faults = faults
        self._lines = lines
        self.client = End(self)
        self.server = End(self)
        self.is_held = faults.holds
        self.is_silent = faults.swallows
        self.is_reached_for = False  # somebody connects it with its server, or has
        self._is_slowed = False
        self._recogniser: Recogniser | None = None
        self._exchanges = Exchanges()
        self._last: End | None = None  # the end that sent the latest bytes

    @property
    def is_connected(self) -> bool:
        return self.server.transport is not None

    def made(self, end: End) -> None:
        if self.client.transport is None:  # it left before its server was reached
            end.close()
            return
        self._lines.add(self)
        self.regulate()

    @property
    def is_idle(self) -> bool:
        """The server has answered, everything has arrived, and the client has sent nothing since."""
        is_through = not (self.client.is_waiting or self.server.is_waiting)
        return self._last is self.server and is_through and not (self.is_held or self.is_silent)

    def heard(self, end: End, data: bytes) -> None:
        self._last = end
        if self.is_silent:
            self._faults.hits.swallowed_bytes += len(data)
        elif not self._is_answered_here(end, data) and not self._is_to_be_cut(end, data):
            self._other(end).send(data, self._delay())

    def heard_the_end(self, end: End) -> None:
        if not self.is_silent:
            end.is_over = True
            self._other(end).send(None, 0.0)

    def told_the_end(self) -> None:
        if self.client.is_over and self.server.is_over:
            self.client.close()
            self.server.close()

    def lost(self, end: End, error: Exception | None) -> None:
        other = self._other(end)
        if other.transport is None:
            self._lines.discard(self)
        elif error is not None and not self.is_silent:
            other.reset()
        elif not self.is_silent:
            other.close()

    def reset(self) -> None:
        self.is_silent = False
        self.client.reset()
        self.server.reset()

    def close(self) -> None:
        """Both ends, in good order, as a gateway does with a connection that was idle for too long."""
        self.client.close()
        self.server.close()

    def watch(self) -> None:
        """From here on for replies that are to be cut."""
        self._recogniser = None if self._faults.replies is None else self._faults.replies()

    def regulate(self) -> None:
        may_read = not self.is_held and (self.is_silent or self.is_connected)
        self.client.listen(may_read and not self.server.is_full)
        self.server.listen(may_read and not self.client.is_full)

    def send_all(self) -> None:
        self.client.send_all()
        self.server.send_all()

    def _other(self, end: End) -> End:
        return self.server if end is self.client else self.client

    def _delay(self) -> float:
        slowness = self._faults.slowness
        delay = 0.0 if slowness is None else slowness.delay(self._faults.chosen)
        if delay > 0.0:
            self._faults.hits.slowed_chunks += 1
            self._faults.hits.slowed += not self._is_slowed
            self._is_slowed = True
        return delay

    def _is_answered_here(self, end: End, data: bytes) -> bool:
        if end is self.client:
            if not self._exchanges.takes_request(data, self._faults.answers, self._faults.chosen):
                return False
            if (response := self._exchanges.response()) is not None:
                self._faults.hits.answered += 1
                self.client.send(response, 0.0)
            return True
        if (response := self._exchanges.replacement()) is None:
            return False
        self._faults.hits.answered += 1
        self.client.send(response, 0.0)
        self.server.reset()  # the rest of its response; the client's end closes after ours is sent
        return True

    def _is_to_be_cut(self, end: End, data: bytes) -> bool:
        if self._recogniser is None:
            return False
        if end is self.client:
            self._recogniser.asked(data)
            return False
        if not self._recogniser.answered(data) or self._faults.cuts <= 0:
            return False
        self._faults.cuts -= 1
        self._faults.hits.cut += 1
        self.reset()
        return True
