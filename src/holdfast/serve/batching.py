"""Many small calls of many clients, made one: everything that arrives while calls are under way goes together next.

A fleet of a thousand workers that each beat on their own costs the store a few statements a second, and nobody waits
for a timer: an idle server calls at once. One caller's bad input is that caller's alone: a call that was refused is
made again for each of its callers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast.domain.answers import Beat, Beaten, Settled
from holdfast.domain.errors import StoreUnavailable, is_away
from holdfast.domain.outcome import Report
from holdfast.serve.budget import Budget
from holdfast.serve.problems import Refused

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_TOGETHER = 500
# A call that hangs on one connection must not keep everything behind it waiting.
LANES = 2
# Whoever has waited so long behind a call that failed because the store is away is told so as well: everybody would
# wait for a time-out after the other's.
LONG_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Caller(Generic[Item, Answer]):
    items: Sequence[Item]
    future: asyncio.Future[list[Answer]]
    since: float = field(default_factory=time.monotonic)

    def answer(self, answers: list[Answer]) -> None:
        if not self.future.done():
            self.future.set_result(answers)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batch(Generic[Item, Answer]):
    """`call` answers each of its items, in their order."""

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
        most: int = MOST_TOGETHER,
        lanes: int = LANES,
    ) -> None:
        self._call = call
        self._most = most
        self._free = lanes
        self._callers: deque[_Caller[Item, Answer]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Callers whose call has not begun."""
        return len(self._callers)

    async def __call__(self, items: Sequence[Item]) -> list[Answer]:
        if not items:
            return []
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._callers.append(_Caller(items, future))
        self._begin()
        return await future

    def _begin(self) -> None:
        while self._callers and self._free:
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._run(self._together()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _together(self) -> list[_Caller[Item, Answer]]:
        """The first, however much it brings, and as many after it as fit."""
        taken = [self._callers.popleft()]
        count = len(taken[0].items)
        while self._callers and count + len(self._callers[0].items) <= self._most:
            taken.append(self._callers.popleft())
            count += len(taken[-1].items)
        return taken

    async def _run(self, callers: list[_Caller[Item, Answer]]) -> None:
        try:
            await self._answer(callers)
        finally:
            self._free += 1
            self._begin()

    async def _answer(self, callers: list[_Caller[Item, Answer]]) -> None:
        try:
            answers = await self._call([item for caller in callers for item in caller.items])
        except Exception as error:
            if len(callers) == 1 or is_away(error) or isinstance(error, Refused):
                for caller in [*callers, *self._who_waited_long(error)]:
                    caller.fail(error)
                return
            for caller in callers:
                await self._answer([caller])
            return
        place = 0
        for caller in callers:
            caller.answer(answers[place : place + len(caller.items)])
            place += len(caller.items)

    def _who_waited_long(self, error: Exception) -> list[_Caller[Item, Answer]]:
        long_ago = time.monotonic() - LONG_SECONDS
        found = []
        while isinstance(error, StoreUnavailable) and self._callers and self._callers[0].since < long_ago:
            found.append(self._callers.popleft())
        return found


class Batching:
    """Heartbeats and reports of all clients."""

    def __init__(self, control: Budget) -> None:
        async def beat(beats: Sequence[Beat]) -> list[Beaten]:
            return await control.call(lambda store: store.heartbeat(beats))

        async def settle(reports: Sequence[Report]) -> list[Settled]:
            return await control.call(lambda store: store.settle(reports))

        self.heartbeats = Batch(beat)
        self.reports = Batch(settle)
