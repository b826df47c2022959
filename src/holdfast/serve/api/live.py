"""The live feed of one server: a single reader of the audit log for all who listen, while somebody listens.

Transactions commit out of order: an event may be dated before others that were seen already. So every look reaches
back a little, every few seconds one reaches back further, and what was told before is not told again. What commits
later than that (an enqueue in a user's own long transaction) is in the audit log, but was never live.

A listener has a bounded line. One that does not keep up loses what is in it and is told so; it never costs more
memory, and it never holds up the others. Between looks there is no connection and no transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.domain.errors import HoldfastError
from holdfast.domain.feed import FeedPage, FeedPlace, Transition
from holdfast.serve.problems import Refused, busy

LOOK_EVERY_SECONDS = 0.5
REACH_BACK = timedelta(seconds=0.5)
REACH_FURTHER_EVERY_SECONDS = 3.0
REACH_FURTHER_BACK = timedelta(seconds=6)
MOST_IN_A_LOOK = 20_000
LOOKING_SHARE = 0.5  # of the time, however slow the store is
PAGE = 1_000
LINE_LENGTH = 1_000
MOST_LISTENERS = 500
MOST_OF_ONE = 200

Read = Callable[[FeedPlace | None, int], Awaitable[FeedPage]]
Wants = Callable[[Transition], bool]
Key = tuple[str, int]

logger = logging.getLogger("holdfast.serve")


def key_of(transition: Transition) -> Key:
    return transition.job_id, transition.seq


@dataclass(eq=False)
class Listener:
    """`lost` is at least how many it could not take; it learns of that before the next transition."""

    wants: Wants
    credential: str = ""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    lost: int = 0
    line: deque[Transition] = field(default_factory=deque)

    def tell(self, transition: Transition) -> None:
        if not self.wants(transition):
            return
        if len(self.line) >= LINE_LENGTH:
            self.lose(len(self.line))
            self.line.clear()
        self.line.append(transition)
        self.news.set()

    def lose(self, count: int) -> None:
        self.lost += count
        self.news.set()

    def take(self) -> tuple[int, list[Transition]]:
        """How many were lost, and what came after them."""
        lost, told = self.lost, list(self.line)
        self.lost = 0
        self.line.clear()
        self.news.clear()
        return lost, told

    async def wait(self, stopping: asyncio.Event, seconds: float) -> None:
        """For news, for so long at most, and not when the server stops."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self.news, stopping)]
        try:
            await asyncio.wait(waiting, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()


class LiveFeed:
    """All of it lives in one event loop; `read` goes to the store in a thread."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self._listeners: set[Listener] = set()
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._position: datetime | None = None
        self._seen: dict[Key, datetime] = {}

    async def listen(self, wants: Wants, credential: str = "") -> Listener:
        """Whatever commits from now on is told, until `leave`. One credential cannot take all the places there are."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise busy(f"{MOST_LISTENERS} streams are open on this server; end some, or ask another one")
        if sum(listener.credential == credential for listener in self._listeners) >= MOST_OF_ONE:
            raise busy(f"this credential has {MOST_OF_ONE} streams open on this server; end some of them")
        listener = Listener(wants, credential)
        self._listeners.add(listener)
        try:
            async with self._starting:
                if self._reader is None:
                    await self._begin()
                    self._reader = asyncio.create_task(self._follow())
        except BaseException:
            self.leave(listener)
            raise
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def since(self, place: FeedPlace, most: int) -> AsyncIterator[FeedPage]:
        """What is on the log, page by page, until its end or until there are so many."""
        while most > 0:
            page = await self.read(place, min(PAGE, most))
            yield page
            if not page.more:
                return
            most -= len(page.items)
            place = page.items[-1].place

    async def _begin(self) -> None:
        """What is there already is no news."""
        self._position = (await self.read(None, 1)).now
        self._seen = {}
        async for page in self.since(FeedPlace(self._position - REACH_FURTHER_BACK), MOST_IN_A_LOOK):
            self._seen.update((key_of(transition), transition.at) for transition in page.items)

    async def _follow(self) -> None:
        further_at = time.monotonic() + REACH_FURTHER_EVERY_SECONDS
        while True:
            started = time.monotonic()
            reach = REACH_BACK
            if started >= further_at:
                reach, further_at = REACH_FURTHER_BACK, started + REACH_FURTHER_EVERY_SECONDS
            try:
                await self._look(reach)
            except (HoldfastError, Refused):
                pass  # the store is away; the next look goes on from where the last one was
            except Exception:
                logger.exception("the live feed could not be read")
            took = time.monotonic() - started
            await asyncio.sleep(max(LOOK_EVERY_SECONDS, took / LOOKING_SHARE))

    async def _look(self, reach: timedelta) -> None:
        assert self._position is not None
        now, is_cut = None, False
        async for page in self.since(FeedPlace(self._position - reach), MOST_IN_A_LOOK):
            now = now or page.now
            for transition in page.items:
                if key_of(transition) not in self._seen:
                    self._seen[key_of(transition)] = transition.at
                    for listener in self._listeners:
                        listener.tell(transition)
            is_cut = page.more
        assert now is not None
        if is_cut:
            for listener in self._listeners:
                listener.lose(1)
        self._position = now
        oldest = now - REACH_FURTHER_BACK
        self._seen = {key: at for key, at in self._seen.items() if at >= oldest}
