"""`ctx.source(name)`: a job inside a source, under the limits which that source has for the whole fleet.

Entering asks the engine, which says yes or when to ask again; the waiting is done here, in the job, so that nobody else
is held up by it. Leaving says how it went, which moves the breaker: an exception is a failure of the source, unless it
says nothing about it (a snooze, a cancel, the end of the process).

A block inside a block of the same source is a part of it (`tasks/blocks.py`). The first entry to the source that the
job was enqueued with is paid for already: the job was claimed under its limits.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.domain import durations
from holdfast.domain.asks import Verb
from holdfast.domain.errors import HoldfastError, LeaseLost
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.names import check_name
from holdfast.domain.sources import End, Entered, Entry, Leaving
from holdfast.tasks.blame import ending, note_told
from holdfast.tasks.blocks import Blocks
from holdfast.tasks.caching import CacheLooks, Place
from holdfast.tasks.flag import Flag
from holdfast.tasks.flow import Cancel, Snooze

if TYPE_CHECKING:
    from holdfast.tasks.asking import Asking
    from holdfast.tasks.context import JobInfo
    from holdfast.tasks.options import Duration

LEAVE_SECONDS = 30.0  # for the engine to hear that we left; the end of the attempt says it anyway
SHORTEST_WAIT_SECONDS = 0.02
LOOK_SECONDS = 0.2
# A source that somebody has locked for a moment is asked again, however short the job would wait for its turn.
BUSY_SECONDS = 0.25
# A job that is turned away comes back for a new claim: not several times a second.
SHORTEST_SNOOZE_SECONDS = 1.0
# And looks again after an hour at the latest: somebody may have opened the source by hand.
LONGEST_SNOOZE_SECONDS = 3600.0
STOPPING = "the worker is stopping"


class Governed(ABC):
    """The part of a context that its sources need."""

    job: JobInfo
    _asking: Asking | None

    def __init__(self, asking: Asking | None) -> None:
        self._asking = asking
        self.no_retry: tuple[type[BaseException], ...] = ()  # of the task that runs
        self._woken = Flag()
        self._entries = itertools.count(1)
        self._own_entries = itertools.count()
        self.cache_looks = CacheLooks()  # for the engine

    @property
    def asking(self) -> Asking | None:
        return self._asking

    def next_entry(self, source: str) -> Entry:
        is_own = source == self.job.source
        return Entry(source, next(self._entries), prepaid=is_own and next(self._own_entries) == 0)

    @abstractmethod
    def stopped(self) -> Exception:
        """What is raised in the job when it has to stop while it waits."""

    @abstractmethod
    def log(self, message: object, level: str = "info", **fields: Any) -> None: ...

    @property
    @abstractmethod
    def has_to_stop(self) -> bool: ...

    def end_waiting(self) -> None:
        """The engine's word that the worker stops: the job may finish, but not by waiting for its turn here."""
        self._woken.set()

    def pause(self, seconds: float) -> None:
        if self._woken.wait(seconds):
            raise self._woken_by(seconds)

    async def apause(self, seconds: float) -> None:
        """A coroutine is cancelled when its job should stop; only what goes on without a lease has to look."""
        import asyncio

        over_at = monotonic() + seconds
        while not self._woken.is_set():
            rest = over_at - monotonic()
            if rest <= 0:
                return
            await asyncio.sleep(min(rest, LOOK_SECONDS))
        raise self._woken_by(seconds)

    def _woken_by(self, seconds: float) -> Exception:
        return self.stopped() if self.has_to_stop else Snooze(seconds, STOPPING)


class SourceGuard:
    """Any thread or coroutine of the job may use it, several at once: each block is an entry of its own."""

    def __init__(self, context: Governed, name: str, max_wait: Duration) -> None:
        self.name = check_name(name, "source")
        self._context = context
        self._max_wait = durations.seconds(max_wait, "max_wait")
        self._blocks = Blocks((context.job.id, context.job.attempt, name))

    # the block

    def __enter__(self) -> Self:
        if self._blocks.join():
            return self
        number = None
        if (asking := self._context.asking) is not None:
            entry, begun = self._context.next_entry(self.name), monotonic()
            number = entry.number
            try:
                while (wait := self._wait(asking.ask(Verb.ENTER, to_json(entry)), begun)) is not None:
                    self._context.pause(wait)
            except BaseException as error:
                self._withdraw(entry, error)
                raise
        self._blocks.begin(number)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        leaving = self._leaving(error)
        if leaving is None or (asking := self._context.asking) is None:
            return
        try:
            asking.ask(Verb.LEAVE, to_json(leaving), LEAVE_SECONDS)
        except Exception as problem:
            self._not_left(problem, error)

    async def __aenter__(self) -> Self:
        if self._blocks.join():
            return self
        number = None
        if (asking := self._context.asking) is not None:
            entry, begun = self._context.next_entry(self.name), monotonic()
            number = entry.number
            try:
                while (wait := self._wait(await asking.aask(Verb.ENTER, to_json(entry)), begun)) is not None:
                    await self._context.apause(wait)
            except BaseException as error:
                self._withdraw(entry, error)
                raise
        self._blocks.begin(number)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        leaving = self._leaving(error)
        if leaving is None or (asking := self._context.asking) is None:
            return
        if isinstance(error, GeneratorExit):  # the coroutine is thrown away, and may not wait any more
            asking.tell(Verb.LEAVE, to_json(leaving))
            return
        try:
            await asking.aask(Verb.LEAVE, to_json(leaving), LEAVE_SECONDS)
        except Exception as problem:
            self._not_left(problem, error)

    def _wait(self, answer: Any, begun: float) -> float | None:
        """None: we are in. Else how long to wait before asking again; Snooze if that is not worth it."""
        entered = from_json(Entered, answer)
        if entered.admitted:
            return None
        wait = max(entered.retry_in, SHORTEST_WAIT_SECONDS)
        longest = max(self._max_wait, BUSY_SECONDS) if entered.reason == "busy" else self._max_wait
        rest = begun + longest - monotonic()
        if wait > rest:
            delay = max(wait, SHORTEST_SNOOZE_SECONDS) * random.uniform(1.0, 1.25)  # not all in the same moment
            raise Snooze(min(delay, LONGEST_SNOOZE_SECONDS), f"source {self.name}: {entered.reason}")
        return min(wait * random.uniform(1.0, 1.1), rest)

    def _withdraw(self, entry: Entry, error: BaseException) -> None:
        """The answer to an ask that was given up may be yes. What the engine itself has answered needs no more."""
        asking = self._context.asking
        if asking is not None and not isinstance(error, Snooze | HoldfastError):
            asking.tell(Verb.LEAVE, to_json(Leaving(entry.source, entry.number)))

    def _leaving(self, error: BaseException | None) -> Leaving | None:
        """None unless this is the last one out."""
        return self._blocks.end(lambda number: self._speak(number, error))

    def _speak(self, number: int, error: BaseException | None) -> Leaving:
        context = self._context
        leaving = Leaving(self.name, number, *ending(context.job, error, self.name, number, context.no_retry))
        if error is not None and leaving.end is not End.NOTHING:
            note_told(context.job, error, self.name, number)
        return leaving

    def _not_left(self, problem: Exception, error: BaseException | None) -> None:
        """Never in place of the user's own exception; but nobody goes on without a lease as if nothing had happened."""
        if error is None and isinstance(problem, LeaseLost | Cancel):
            raise problem
        self._context.log(f"leaving source {self.name} could not be told: {problem}", level="warning")

    # the cache

    def cached(self, key: Any, fn: Callable[[], Any], ttl: Duration | None = None) -> Any:
        """What `fn` returned for this key before, from wherever in the fleet, while it is fresh; else what it returns
        now. The key is text, or anything JSON can hold; the value is as JSON gives it back, found or not. Outside a
        block of this source `fn` runs in one of its own; what is found asks nobody's leave."""
        place = Place(self._context.log, self._context.cache_looks, self.name, key, ttl)
        if place.look(self._try(Verb.CACHED, place.question)):
            return place.value
        if self._blocks.is_inside:
            value = fn()
        else:
            with self:
                value = fn()
        if place.takes(value):
            self._try(Verb.KEEP_CACHED, place.kept)
        return place.value

    async def acached(self, key: Any, fn: Callable[[], Awaitable[Any]], ttl: Duration | None = None) -> Any:
        """The same for a coroutine function."""
        place = Place(self._context.log, self._context.cache_looks, self.name, key, ttl)
        if place.look(await self._atry(Verb.CACHED, place.question)):
            return place.value
        if self._blocks.is_inside:
            value = await fn()
        else:
            async with self:
                value = await fn()
        if place.takes(value):
            await self._atry(Verb.KEEP_CACHED, place.kept)
        return place.value

    def _try(self, verb: Verb, body: dict[str, Any]) -> Any:
        try:
            return None if self._context.asking is None else self._context.asking.ask(verb, body)
        except HoldfastError as error:
            return self._no_cache(error)

    async def _atry(self, verb: Verb, body: dict[str, Any]) -> Any:
        try:
            return None if self._context.asking is None else await self._context.asking.aask(verb, body)
        except HoldfastError as error:
            return self._no_cache(error)

    def _no_cache(self, error: HoldfastError) -> None:
        if isinstance(error, LeaseLost):
            raise error
        self._context.log(f"the cache of source {self.name} was not used: {error}", level="warning")
