"""A way to a server on which everything that can go wrong with a way does, when it is told to.

One thread with an event loop carries all connections; every method may be called from any other thread, and has taken
effect when it returns. A fault is begun by one method and ended by another: the first returns how many connections are
there to be hit, the second how many it has hit since it began, and `hits` has it all. Several may be on at once.

reset()                          now: both sides of every connection see a reset
black_hole() … forward()         nothing arrives, nobody is told
slow() … full_speed()            every chunk is late, the order is kept
refuse() … admit()               new connections are reset at once
cut_replies() … keep_replies()   requests are carried out, and their answers never arrive
answer() … pass_on()             HTTP requests get a response of the proxy's own
close_idle()                     now: connections with no request under way are closed in good order
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar, cast

from holdfast.throwaway.process import free_port
from holdfast.torture.proxy_answers import Answers
from holdfast.torture.proxy_line import Faults, Hits, Line, Slowness, reset
from holdfast.torture.replies import Replies, any_reply

LOOPBACK = "127.0.0.1"
BACKLOG = 512
ANSWER_SECONDS = 30.0

Address = tuple[str, int]
T = TypeVar("T")


class FaultProxy:
    """Connections are accepted between `start` and `close`; the port is known before."""

    def __init__(self, target: Address, *, seed: int | None = None) -> None:
        self._target = target
        self.port = free_port()
        self._faults = Faults(random.Random(seed))
        self._lines: set[Line] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._before: dict[str, int] = {}  # hits, when a fault that is on began
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> Address:
        return LOOPBACK, self.port

    @property
    def hits(self) -> Hits:
        return replace(self._faults.hits)

    @property
    def connections(self) -> int:
        """Those of which at least one side is open."""
        return self._done(lambda: len(self._lines))

    def start(self) -> Self:
        listener = socket.create_server(self.address, backlog=BACKLOG)
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(listener, ready), name="fault-proxy", daemon=True)
        self._thread.start()
        self._loop = ready.result(ANSWER_SECONDS)
        return self

    def close(self) -> None:
        """Every connection ends. Safe to call twice."""
        if self._loop is not None and self._thread is not None:
            self._done(self._over.set)
            self._thread.join()
            self._loop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def retarget(self, target: Address) -> None:
        """Where new connections lead to."""
        self._done(lambda: setattr(self, "_target", target))

    # faults

    def reset(self) -> int:
        """All connections, the silent ones that a black hole left behind as well."""
        return self._done(lambda: self._reset(list(self._lines)))

    def reset_silent(self) -> int:
        """Only those: what keepalives do in the end. Until then each holds a connection of the server's."""
        return self._done(lambda: self._reset([line for line in self._lines if line.is_silent]))

    def close_idle(self) -> int:
        """Close the connections whose last request was answered; how many they were."""
        return self._done(self._close_idle)

    def black_hole(self, *, resume: bool = False) -> int:
        """Every connection stays open, new ones are accepted, and nothing that either side sends arrives.

        `resume` says what becomes of them in the end: with it, what was sent is delivered after all, late, as after a
        short partition, in which the kernels keep sending; without it, connections that were there stay silent for good
        (until `reset`), as when whatever kept track of them on the way has forgotten them.
        """
        return self._done(lambda: self._black_hole(resume))

    def forward(self) -> int:
        """The end of it; how many connections it hit."""
        return self._done(self._forward)

    def slow(self, seconds: float = 0.2, jitter: float = 1.8, chance: float = 1.0) -> int:
        """Each chunk is late by `seconds` and up to `jitter` more; beyond this chance only by what is before it."""
        return self._done(lambda: self._slow(Slowness(seconds, jitter, chance)))

    def full_speed(self) -> int:
        """The end of it: what waits is sent. How many chunks were late."""
        return self._done(self._full_speed)

    def refuse(self) -> int:
        """New connections, that is."""
        return self._done(lambda: self._set_refusing(True))

    def admit(self) -> int:
        """The end of it; how many were refused."""
        return self._done(lambda: self._set_refusing(False))

    def cut_replies(self, count: int, replies: Replies = any_reply) -> int:
        """Let the next so many requests be carried out, throw their answers away and reset the connections."""
        return self._done(lambda: self._cut(count, replies))

    def keep_replies(self) -> int:
        """The end of it, also when fewer were cut than asked for; how many were."""
        return self._done(lambda: self._cut(0, None))

    def answer(self, answers: Answers) -> int:
        """Send responses of the proxy's own to HTTP requests that begin from now on."""
        return self._done(lambda: self._answer(answers))

    def pass_on(self) -> int:
        """The end of it; how many requests the proxy answered."""
        return self._done(lambda: self._answer(None))

    # on the loop

    def _run(self, listener: socket.socket, ready: Future[asyncio.AbstractEventLoop]) -> None:
        asyncio.run(self._serve(listener, ready))

    async def _serve(self, listener: socket.socket, ready: Future[asyncio.AbstractEventLoop]) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, sock=listener)
        ready.set_result(loop)
        await self._over.wait()
        server.close()
        for task in self._connecting:
            task.cancel()
        for line in list(self._lines):
            line.reset()
        while self._lines:  # a reset takes one more turn of the loop
            await asyncio.sleep(0)

    def _accept(self) -> asyncio.Protocol:
        if self._faults.refuses:
            return _Refusal(self._faults.hits)
        line = Line(self._faults, self._lines)
        line.watch()
        if line.is_silent or line.is_held:
            self._faults.hits.swallowed += 1
        else:
            self._connect(line)
        return line.client

    def _connect(self, line: Line) -> None:
        if line.is_reached_for:
            return
        line.is_reached_for = True
        task = asyncio.get_running_loop().create_task(self._reach(line))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _reach(self, line: Line) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: line.server, *self._target)
        except OSError:
            line.reset()

    def _reset(self, lines: list[Line]) -> int:
        for line in lines:
            line.reset()
        self._faults.hits.reset += len(lines)
        return len(lines)

    def _close_idle(self) -> int:
        idle = [line for line in self._lines if line.is_idle]
        for line in idle:
            line.close()
        self._faults.hits.closed += len(idle)
        return len(idle)

    def _black_hole(self, resume: bool) -> int:
        self._begin("swallowed")
        self._faults.holds, self._faults.swallows = resume, not resume
        hit = [line for line in self._lines if not line.is_silent]
        for line in hit:
            line.is_held, line.is_silent = resume, not resume
            line.regulate()
        self._faults.hits.swallowed += len(hit)
        return len(hit)

    def _forward(self) -> int:
        self._faults.holds = self._faults.swallows = False
        for line in [line for line in self._lines if line.is_held]:
            line.is_held = False
            line.regulate()
            self._connect(line)
        return self._hit("swallowed")

    def _slow(self, slowness: Slowness) -> int:
        self._begin("slowed_chunks")
        self._faults.slowness = slowness
        return len(self._lines)

    def _full_speed(self) -> int:
        self._faults.slowness = None
        for line in list(self._lines):
            line.send_all()
        return self._hit("slowed_chunks")

    def _set_refusing(self, refuses: bool) -> int:
        self._faults.refuses = refuses
        if not refuses:
            return self._hit("refused")
        self._begin("refused")
        return 0

    def _cut(self, count: int, replies: Replies | None) -> int:
        self._faults.cuts, self._faults.replies = count, replies
        for line in self._lines:
            line.watch()
        if replies is None:
            return self._hit("cut")
        self._begin("cut")
        return len(self._lines)

    def _answer(self, answers: Answers | None) -> int:
        self._faults.answers = answers
        if answers is None:
            return self._hit("answered")
        self._begin("answered")
        return len(self._lines)

    def _begin(self, kind: str) -> None:
        self._before[kind] = getattr(self._faults.hits, kind)

    def _hit(self, kind: str) -> int:
        """Since it began; none when it never did."""
        now: int = getattr(self._faults.hits, kind)
        return now - self._before.pop(kind, now)

    def _done(self, act: Callable[[], T]) -> T:
        """Carried out by the loop's thread."""
        if self._loop is None:
            raise RuntimeError("the proxy is not running")
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(act())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(ANSWER_SECONDS)


class _Refusal(asyncio.Protocol):
    def __init__(self, hits: Hits) -> None:
        self._hits = hits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._hits.refused += 1
        reset(cast(asyncio.Transport, transport))
