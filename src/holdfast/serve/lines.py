"""A line of waiting polls that ask for the same thing: the same queues, the same tasks.

While nothing is due for one of them nothing is due for any, so the store is asked on behalf of the first only. As long
as that finds jobs it goes on, a few claims side by side; as soon as it comes back empty the whole line rests until
something rings, a poll interval that grows is over, or a source's token is there for which work waits. Whoever joins a
resting line waits with it: at most ten questions a second are asked for a line in which nothing is found and that waits
for no token, however many join it.

A question that hangs holds up nobody but the one it is asked for: after a second the next is asked beside it, and who
is due and still has to stand behind it is told to ask again. What it brings when nobody waits for it any more is
handed to `late`.

A poll that does not wait (`due` from the beginning) is answered by the first question that began after it had joined.
Everything here happens in the server's loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from holdfast.domain.errors import RequestBusy, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.serve.problems import Refused, busy
from holdfast.serve.waiters import Found, Poll, Waiter, Wanted

__all__ = ["Found", "Line", "Poll", "Waiter", "Wanted"]

FIRST_WAIT_SECONDS = 0.1
SHORTEST_WAIT_SECONDS = 0.01
SLOW_SECONDS = 1.0


class Line:
    def __init__(
        self,
        ask: Callable[[Wanted], Awaitable[Found]],
        late: Callable[[Wanted, list[Claimed]], None],
        longest_wait: float,
        most_at_once: int,
    ) -> None:
        self._ask = ask
        self._late = late
        self._longest_wait = longest_wait
        self._most = most_at_once
        self._most_slow = max(1, most_at_once // 2)  # a line whose questions hang leaves threads to the others
        self._waiters: dict[Waiter, None] = {}  # in the order they joined
        self._count = 0  # of those who joined and of questions that began
        self._look = True  # there is a reason to ask
        self._rush = False  # the last question was answered in full: there is probably more
        self._allowed = 1
        self._asking: set[Waiter] = set()
        self._slow: set[Waiter] = set()  # who is asked for, but no longer in the way of others
        self._emptied_at: float | None = None
        self._trouble: Exception | None = None
        self._wait = 0.0
        self._again_in: float | None = None  # as of the last answer: a limited source lets something in then
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiters)

    def has(self, waiter: Waiter) -> bool:
        return waiter in self._waiters and waiter.waits

    def join(self, waiter: Waiter, poll: Poll) -> None:
        self._count += 1
        poll.joined = self._count
        waiter.polls.append(poll)
        self._waiters[waiter] = None
        if poll.due:
            self._look = True
        elif self._emptied_at is not None and not self._asking and not self._look:
            self._look_at(self._emptied_at + FIRST_WAIT_SECONDS)
        self._pump()

    def ring(self) -> None:
        """There may be something to claim."""
        self._look = True
        self._wait = 0.0
        self._pump()

    def time_is_over(self, waiter: Waiter, poll: Poll) -> None:
        poll.due = True
        if not poll.waits:
            return
        if poll.looked_for and not waiter.asking:
            self._dismiss(waiter, poll)
            return
        asyncio.get_running_loop().call_later(SLOW_SECONDS, self._patience_is_over, waiter, poll)
        if not waiter.asking:
            self._look = True
            self._pump()

    def leave(self, waiter: Waiter) -> bool:
        """False when a claim for it is under way: its answer is still to come."""
        if waiter.asking:
            return False
        self._waiters.pop(waiter, None)
        return True

    def stop(self) -> None:
        """Everybody goes home now; whoever is just being claimed for, in a moment."""
        self._cancel_timer()
        for waiter in list(self._waiters):
            for poll in waiter.polls:
                poll.due = True
            if waiter.asking:
                asyncio.get_running_loop().call_later(SLOW_SECONDS, self._send_home, waiter)
            else:
                self._waiters.pop(waiter)
                waiter.answer(Found([], time.monotonic()))

    # asking

    def _pump(self) -> None:
        while (self._look or self._rush) and self._may_ask() and (waiter := self._first()) is not None:
            self._look = False
            self._cancel_timer()
            self._asking.add(waiter)
            waiter.asking = True
            task = asyncio.get_running_loop().create_task(self._ask_for(waiter))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_ask(self) -> bool:
        return len(self._asking) < self._allowed and len(self._slow) < self._most_slow

    def _first(self) -> Waiter | None:
        return next((waiter for waiter in self._waiters if not waiter.asking and waiter.waits), None)

    async def _ask_for(self, waiter: Waiter) -> None:
        self._count += 1
        began = self._count
        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._is_slow, waiter)
        try:
            found = await self._ask(waiter.wanted)
        except RequestBusy as error:
            self._asked(waiter)
            self._failed_alone(waiter, busy(str(error)))
        except (StoreUnavailable, Refused) as error:
            self._again_in = None
            if self._asked(waiter):
                self._came_back_empty(began, error)
            else:  # others were asked for meanwhile: what they heard counts for the line
                self._fail_due(waiter, error)
                self._look = True
        except Exception as error:  # of this poll alone: a name that breaks a rule, say
            self._asked(waiter)
            self._failed_alone(waiter, error)
        else:
            self._asked(waiter)
            self._heard(waiter, found, began)
        finally:
            timer.cancel()
        self._pump()
        self._rest()

    def _is_slow(self, waiter: Waiter) -> None:
        if waiter in self._asking:
            self._asking.remove(waiter)
            self._slow.add(waiter)
            self._look = True
            self._pump()
            self._rest()

    def _asked(self, waiter: Waiter) -> bool:
        """True when the line has waited for it."""
        waiter.asking = False
        self._slow.discard(waiter)
        if waiter in self._asking:
            self._asking.remove(waiter)
            return True
        return False

    def _heard(self, waiter: Waiter, found: Found, began: int) -> None:
        self._again_in = found.again_in
        if not found.jobs:
            self._came_back_empty(began, None)
            return
        self._waiters.pop(waiter, None)
        if waiter.waits:
            waiter.answer(found)
        else:
            self._late(waiter.wanted, found.jobs)
        self._trouble = None
        self._wait = 0.0
        self._rush = len(found.jobs) >= waiter.wanted.limit
        self._allowed = min(self._most, self._allowed * 2) if self._rush else 1

    def _came_back_empty(self, began: int, trouble: Exception | None) -> None:
        self._rush = False
        self._allowed = 1
        self._emptied_at = time.monotonic()
        self._trouble = trouble
        for waiter in list(self._waiters):
            for poll in [poll for poll in waiter.polls if poll.joined < began]:
                poll.looked_for = True
                if poll.due and not waiter.asking:
                    self._dismiss(waiter, poll)

    # going home

    def _dismiss(self, waiter: Waiter, poll: Poll) -> None:
        """There was nothing, or the store is away; only then is that an error."""
        if self._trouble is not None:
            poll.fail(self._trouble)
        else:
            now = time.monotonic()
            poll.answer(Found([], now, self._opens_in(now)))
        self._drop(waiter)

    def _opens_in(self, now: float) -> float | None:
        """What is left of what the last answer said."""
        if self._again_in is None or self._emptied_at is None:
            return None
        return max(0.0, self._again_in - (now - self._emptied_at))

    def _patience_is_over(self, waiter: Waiter, poll: Poll) -> None:
        """Who is asked for waits for that answer; who stands behind a question that hangs does not."""
        if not poll.waits:
            return
        if self._slow and not waiter.asking:
            poll.fail(_hangs())
            self._drop(waiter)
        else:
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._patience_is_over, waiter, poll)

    def _send_home(self, waiter: Waiter) -> None:
        waiter.fail(_hangs())
        self._drop(waiter)

    def _failed_alone(self, waiter: Waiter, error: Exception) -> None:
        waiter.fail(error)
        self._drop(waiter)
        self._look = True

    def _fail_due(self, waiter: Waiter, error: Exception) -> None:
        waiter.each(lambda poll: poll.fail(error) if poll.due else None)
        self._drop(waiter)

    def _drop(self, waiter: Waiter) -> None:
        if not waiter.waits:
            self._waiters.pop(waiter, None)

    # resting

    def _rest(self) -> None:
        if self._asking or not self._waiters:
            return
        news = any(not poll.looked_for for waiter in self._waiters for poll in waiter.polls)
        grown = min(self._longest_wait, self._wait * 1.5 if self._wait else FIRST_WAIT_SECONDS)
        self._wait = min(FIRST_WAIT_SECONDS, self._longest_wait) if news else grown
        wait = self._wait * random.uniform(0.75, 1.0)
        if self._again_in is not None:
            wait = min(wait, max(SHORTEST_WAIT_SECONDS, self._again_in))
        self._look_at(time.monotonic() + wait)

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


def _hangs() -> StoreUnavailable:
    return StoreUnavailable("the store takes long to answer a claim")
