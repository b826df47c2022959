"""A line of waiting polls that ask for the same thing: the same queues, the same tasks.

While nothing is due for one of them nothing is due for any, so the store is asked on behalf of the first only. As long
as that finds jobs it goes on, a few claims side by side; as soon as it comes back empty the whole line rests until
something rings, or a poll interval that grows is over. Whoever joins a resting line waits with it: at most ten
questions a second are asked for a line in which nothing is found, however many join it.

A poll that does not wait (`due` from the beginning) is answered by the first question that began after it had joined.
Everything here happens in the server's loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.serve.problems import Refused

FIRST_WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a poll asks for, and on whose behalf."""

    worker: str
    limit: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    credential: str
    request_id: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """What a claim brought; `asked_at` is when its transaction began."""

    jobs: list[Claimed]
    asked_at: float


@dataclass(eq=False, slots=True)
class Waiter:
    wanted: Wanted
    futures: list[asyncio.Future[Found]]  # several where one request was sent twice
    due: bool = False  # its time is over: the next empty answer is its own
    joined: int = 0
    looked_for: bool = False  # a question that began after it had joined came back empty
    asking: bool = False

    @property
    def waits(self) -> bool:
        return any(not future.done() for future in self.futures)

    def answer(self, found: Found) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(found)

    def fail(self, error: Exception) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class Line:
    def __init__(self, ask: Callable[[Wanted], Awaitable[Found]], longest_wait: float, most_at_once: int) -> None:
        self._ask = ask
        self._longest_wait = longest_wait
        self._most = most_at_once
        self._waiters: dict[Waiter, None] = {}  # in the order they joined
        self._count = 0  # of those who joined and of questions that began
        self._look = True  # there is a reason to ask
        self._rush = False  # the last question was answered in full: there is probably more
        self._allowed = 1
        self._asking = 0
        self._emptied_at: float | None = None
        self._trouble: Exception | None = None
        self._wait = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiters)

    def has(self, waiter: Waiter) -> bool:
        return waiter in self._waiters and waiter.waits

    def join(self, waiter: Waiter) -> None:
        self._count += 1
        waiter.joined = self._count
        self._waiters[waiter] = None
        if waiter.due:
            self._look = True
        elif self._emptied_at is not None and not self._asking and not self._look:
            self._look_at(self._emptied_at + FIRST_WAIT_SECONDS)
        self._pump()

    def ring(self) -> None:
        """There may be something to claim."""
        self._look = True
        self._wait = 0.0
        self._pump()

    def time_is_over(self, waiter: Waiter) -> None:
        waiter.due = True
        if waiter not in self._waiters or waiter.asking:
            return  # answered, or about to be
        if waiter.looked_for:
            self._dismiss(waiter)
        else:
            self._look = True
            self._pump()

    def leave(self, waiter: Waiter) -> bool:
        """False when a claim for it is under way: its answer is still to come."""
        if waiter.asking:
            return False
        self._waiters.pop(waiter, None)
        return True

    def stop(self) -> None:
        """Everybody who is not being claimed for goes home now."""
        self._cancel_timer()
        for waiter in list(self._waiters):
            waiter.due = True
            if not waiter.asking:
                self._waiters.pop(waiter)
                waiter.answer(Found([], time.monotonic()))

    # asking

    def _pump(self) -> None:
        while (self._look or self._rush) and self._asking < self._allowed and (waiter := self._first()) is not None:
            self._look = False
            self._cancel_timer()
            self._asking += 1
            waiter.asking = True
            task = asyncio.get_running_loop().create_task(self._ask_for(waiter))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _first(self) -> Waiter | None:
        return next((waiter for waiter in self._waiters if not waiter.asking and waiter.waits), None)

    async def _ask_for(self, waiter: Waiter) -> None:
        self._count += 1
        began = self._count
        try:
            found = await self._ask(waiter.wanted)
        except (StoreUnavailable, Refused) as error:
            self._asked(waiter)
            self._came_back_empty(began, error)
        except Exception as error:  # of this poll alone: a name that breaks a rule, say
            self._asked(waiter)
            self._waiters.pop(waiter, None)
            waiter.fail(error)
            self._look = True
        else:
            self._asked(waiter)
            self._heard(waiter, found, began)
        self._pump()
        self._rest()

    def _asked(self, waiter: Waiter) -> None:
        waiter.asking = False
        self._asking -= 1

    def _heard(self, waiter: Waiter, found: Found, began: int) -> None:
        if not found.jobs:
            self._came_back_empty(began, None)
            return
        self._waiters.pop(waiter, None)
        waiter.answer(found)
        self._trouble = None
        self._wait = 0.0
        self._rush = len(found.jobs) >= waiter.wanted.limit
        self._allowed = min(self._most, self._allowed * 2) if self._rush else 1

    def _came_back_empty(self, began: int, trouble: Exception | None) -> None:
        self._rush = False
        self._allowed = 1
        self._emptied_at = time.monotonic()
        self._trouble = trouble
        for waiter in [waiter for waiter in self._waiters if waiter.joined < began]:
            waiter.looked_for = True
            if waiter.due and not waiter.asking:
                self._dismiss(waiter)

    def _dismiss(self, waiter: Waiter) -> None:
        """There was nothing, or the store is away; only then is that an error."""
        self._waiters.pop(waiter, None)
        if self._trouble is not None:
            waiter.fail(self._trouble)
        else:
            waiter.answer(Found([], time.monotonic()))

    # resting

    def _rest(self) -> None:
        if self._asking or not self._waiters:
            return
        news = any(not waiter.looked_for for waiter in self._waiters)
        grown = min(self._longest_wait, self._wait * 1.5 if self._wait else FIRST_WAIT_SECONDS)
        self._wait = min(FIRST_WAIT_SECONDS, self._longest_wait) if news else grown
        self._look_at(time.monotonic() + self._wait * random.uniform(0.75, 1.0))

    def _look_at(self, when: float) -> None:
        if self._timer is not None and self._timer_at <= when:
            return
        self._cancel_timer()
        self._timer_at = when
        delay = max(0.0, when - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._time_to_look)

    def _time_to_look(self) -> None:
        self._timer = None
        self._look = True
        self._pump()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
