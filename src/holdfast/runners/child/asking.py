"""What the jobs of a runner ask their supervisor, and the waiting for its answers.

Any thread may ask, and coroutines; asks leave in the order of their numbers, a limited number of them and of bytes at a
time, so that a job which asks for ten thousand things at once fills no supervisor. Every ask is answered once, those of
attempts that are over too. Answers are taken by the thread that reads the socket: a coroutine that waits the blocking
way holds up its loop, and must be answered all the same.

A waiter is woken when its job has to stop: at once if the lease is gone, else after a moment in which the answer will
most likely come.
"""

from __future__ import annotations

import itertools
from _thread import LockType, allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Any

from holdfast.domain.asks import MOST_BYTES, Verb, error_from_json
from holdfast.domain.errors import ConfigurationError, LeaseLost, StoreUnavailable, TooLarge
from holdfast.runners.child import messages
from holdfast.tasks.turn import Turn

if TYPE_CHECKING:
    from holdfast.runners.child.link import Link
    from holdfast.runners.frames import Frame

WINDOW = 64  # asks that somebody waits for, on their way at a time
# With those that nobody waits for any more: their places go to others at once, as long as no supervisor is flooded.
MOST_OPEN = 192
MOST_OPEN_BYTES = 8 * 1024 * 1024
STOP_SECONDS = 1.0

_FORKED = (
    "this process was forked by the task, and only the task's own process can ask the engine: hand the data back to it"
)
_INTERRUPTED = (
    "a signal handler that has interrupted an ask cannot wait for another one: set a flag there, and ask in the task"
)


def _closed_gate() -> LockType:
    gate = allocate_lock()
    gate.acquire()
    return gate


@dataclass(slots=True, eq=False)
class _Ask:
    """Who waits the blocking way waits at the gate, and not in the future: there a thread holds a lock for a moment,
    and a signal handler that interrupts it just then and asks, too, would wait for ever, because the thread that reads
    the answers would want that lock for the first of them."""

    lease_id: str
    number: int
    data: bytes
    answer: Future[Any] = field(default_factory=Future)
    gate: LockType = field(default_factory=_closed_gate)


class Asks:
    """Shared by all jobs of a runner."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._turn = Turn()
        self._numbers = itertools.count(1)
        self._sent: dict[int, _Ask] = {}
        self._given_up: dict[int, _Ask] = {}  # sent, not answered yet, and nobody waits for it
        self._unsent: deque[_Ask] = deque()
        self._open_bytes = 0

    def begin(self, lease_id: str, verb: Verb, body: dict[str, Any]) -> _Ask:
        if not self._link.is_open:
            raise ConfigurationError(_FORKED)
        if self._turn.is_mine or self._link.is_sending_here:
            raise ConfigurationError(_INTERRUPTED)
        number = next(self._numbers)
        data = messages.frame("ask", id=lease_id, number=number, verb=verb, body=body)
        if len(data) > MOST_BYTES:
            rule = f"takes {len(data):,} bytes, and {MOST_BYTES:,} is the most at once; ask in portions"
            raise TooLarge(verb, rule, MOST_BYTES)
        ask = _Ask(lease_id, number, data)
        with self._turn:
            self._unsent.append(ask)
            self._send_some()
        return ask

    def answered(self, frame: Frame) -> None:
        with self._turn:
            number = frame["number"]
            ask = self._sent.pop(number, None) or self._given_up.pop(number, None)
            self._open_bytes -= 0 if ask is None else len(ask.data)
            self._send_some()
        if ask is None:
            return
        if "error" in frame:
            _fail(ask, error_from_json(frame["error"]))
        else:
            _set(ask, ask.answer.set_result, frame["value"])

    def drop(self, lease_id: str, why: Exception) -> None:
        """Its waiters are woken by this, and others get its places; what is on its way is done or not, and nobody hears
        of it."""
        with self._turn:
            sent = [ask for ask in self._sent.values() if ask.lease_id == lease_id]
            unsent = [ask for ask in self._unsent if ask.lease_id == lease_id]
            self._unsent = deque(ask for ask in self._unsent if ask.lease_id != lease_id)
            for ask in sent:
                self._given_up[ask.number] = self._sent.pop(ask.number)
            self._send_some()
        for ask in (*sent, *unsent):
            _fail(ask, why)

    def _send_some(self) -> None:
        """With the turn held, which keeps them in order."""
        while self._unsent and self._has_room(len(self._unsent[0].data)):
            ask = self._unsent.popleft()
            self._sent[ask.number] = ask
            self._open_bytes += len(ask.data)
            self._link.send(ask.data)

    def _has_room(self, size: int) -> bool:
        in_all = len(self._sent) + len(self._given_up)
        return len(self._sent) < WINDOW and in_all < MOST_OPEN and self._open_bytes + size <= MOST_OPEN_BYTES


class JobAsks:
    """One job's way to ask."""

    __slots__ = ("_asks", "_is_over", "_is_used", "_lease_id")

    def __init__(self, lease_id: str, asks: Asks) -> None:
        self._lease_id = lease_id
        self._asks = asks
        self._is_used = False
        self._is_over = False

    def ask(self, verb: Verb, body: dict[str, Any], timeout: float | None = None) -> Any:
        ask = self._begin(verb, body)
        # A TimeoutError here is the user's own: of a signal handler, say.
        if not ask.gate.acquire(timeout=-1 if timeout is None else timeout):
            raise StoreUnavailable(_no_answer(timeout or 0.0))
        return ask.answer.result()

    async def aask(self, verb: Verb, body: dict[str, Any], timeout: float | None = None) -> Any:
        import asyncio  # of functions alone, a runner never needs it

        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await asyncio.wrap_future(self._begin(verb, body).answer)
        except TimeoutError:
            if timeout is None or not limit.expired():
                raise
            raise StoreUnavailable(_no_answer(timeout)) from None

    def tell(self, verb: Verb, body: dict[str, Any]) -> None:
        self._begin(verb, body)

    def stop(self, why: Callable[[], Exception]) -> None:
        """The job has to stop; `why` says what to raise in whoever waits."""
        if not self._is_used:
            return
        error = why()
        if isinstance(error, LeaseLost):
            self._asks.drop(self._lease_id, error)
            return
        start_new_thread(self._drop_later, (error,))

    def _drop_later(self, error: Exception) -> None:
        sleep(STOP_SECONDS)
        self._asks.drop(self._lease_id, error)

    def close(self) -> None:
        """The job has ended; what a thread that it left behind wants is nobody's."""
        self._is_over = True
        if self._is_used:  # most jobs ask for nothing: no lock for them
            self._asks.drop(self._lease_id, _over())

    def _begin(self, verb: Verb, body: dict[str, Any]) -> _Ask:
        if self._is_over:
            raise _over()
        self._is_used = True
        return self._asks.begin(self._lease_id, verb, body)


def _over() -> LeaseLost:
    return LeaseLost("the attempt that asks is over: a job must wait for its threads before it ends")


def _no_answer(seconds: float) -> str:
    return f"the engine has not answered within {seconds:g} s"


def _fail(ask: _Ask, error: Exception) -> None:
    _set(ask, ask.answer.set_exception, error)


def _set(ask: _Ask, setter: Callable[[Any], None], value: Any) -> None:
    try:
        setter(value)
    except InvalidStateError:  # whoever waited for it has given up, or it was answered meanwhile
        return
    ask.gate.release()
