"""`ctx.source(name)`: a job inside a source, under the limits which that source has for the whole fleet.

Entering asks the engine, which says yes or when to ask again; the waiting is done here, in the job, so that nobody else
is held up by it. Leaving says how it went, which moves the breaker: an exception is a failure of the source, unless it
says nothing about it (a snooze, a cancel, the end of the process).

A block inside a block of the same source is a part of it: it enters nothing, so it cannot wait for itself. The first
entry to the source that the job was enqueued with is paid for already: the job was claimed under its limits.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.domain import durations
from holdfast.domain.asks import Verb
from holdfast.domain.errors import HoldfastError, LeaseLost, StoreUnavailable
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.names import check_name
from holdfast.domain.sources import End, Entered, Entry, Leaving
from holdfast.tasks.caching import Place
from holdfast.tasks.flow import Cancel, Permanent, RetryAfter, Snooze
from holdfast.tasks.options import Duration
from holdfast.tasks.retry_after import asked_for

if TYPE_CHECKING:
    from holdfast.tasks.asking import Asking
    from holdfast.tasks.context import JobInfo

LEAVE_SECONDS = 30.0  # for the engine to hear that we left; the end of the attempt says it anyway
SHORTEST_WAIT_SECONDS = 0.02
LOOK_SECONDS = 0.2
# A job that is turned away looks again after an hour at the latest: somebody may have opened the source by hand.
LONGEST_SNOOZE_SECONDS = 3600.0

# How often the running code is inside which source of which attempt.
_inside: ContextVar[Mapping[tuple[str, int, str], int]] = ContextVar("holdfast_inside", default=MappingProxyType({}))


class Governed:
    """The part of a context that its sources need."""

    job: JobInfo
    _asking: Asking | None

    def __init__(self, asking: Asking | None) -> None:
        self._asking = asking
        self.no_retry: tuple[type[BaseException], ...] = ()  # of the task that runs
        self._woken = threading.Event()
        self._entries = itertools.count(1)
        self._own_entries = itertools.count()
        self._throttles: list[BaseException] = []

    @property
    def asking(self) -> Asking | None:
        return self._asking

    def next_entry(self, source: str) -> Entry:
        is_own = source == self.job.source
        return Entry(source, next(self._entries), prepaid=is_own and next(self._own_entries) == 0)

    def note_throttle(self, error: BaseException) -> None:
        """Some source was told that this error asks to be left alone."""
        self._throttles.append(error)

    def has_told(self, error: BaseException) -> bool:
        return any(told is error for told in self._throttles)

    def stopped(self) -> Exception:
        """What is raised in the job when it has to stop while it waits."""
        raise NotImplementedError

    def log(self, message: object, level: str = "info", **fields: Any) -> None:
        raise NotImplementedError

    def pause(self, seconds: float) -> None:
        if self._woken.wait(seconds):
            raise self.stopped()

    async def apause(self, seconds: float) -> None:
        """A coroutine is cancelled when its job should stop; only what goes on without a lease has to look."""
        over_at = time.monotonic() + seconds
        while not self._woken.is_set():
            rest = over_at - time.monotonic()
            if rest <= 0:
                return
            await asyncio.sleep(min(rest, LOOK_SECONDS))
        raise self.stopped()


class SourceGuard:
    """Any thread or coroutine of the job may use it, several at once: each block is an entry of its own."""

    def __init__(self, context: Governed, name: str, max_wait: Duration) -> None:
        self.name = check_name(name, "source")
        self._context = context
        self._max_wait = durations.seconds(max_wait, "max_wait")
        self._key = (context.job.id, context.job.attempt, name)
        self._numbers: list[int] = []  # of the entries that are open; one is as good as another

    # the block

    def __enter__(self) -> Self:
        if self._is_first() and (asking := self._context.asking) is not None:
            entry, deadline = self._context.next_entry(self.name), time.monotonic() + self._max_wait
            try:
                while (wait := self._wait(asking.ask(Verb.ENTER, to_json(entry)), deadline)) is not None:
                    self._context.pause(wait)
            except BaseException as error:
                self._withdraw(entry, error)
                raise
            self._numbers.append(entry.number)
        self._step(1)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._step(-1)
        leaving = self._leaving(error)
        if leaving is None or (asking := self._context.asking) is None:
            return
        try:
            asking.ask(Verb.LEAVE, to_json(leaving), LEAVE_SECONDS)
        except Exception as problem:
            self._not_left(problem, error)

    async def __aenter__(self) -> Self:
        if self._is_first() and (asking := self._context.asking) is not None:
            entry, deadline = self._context.next_entry(self.name), time.monotonic() + self._max_wait
            try:
                while (wait := self._wait(await asking.aask(Verb.ENTER, to_json(entry)), deadline)) is not None:
                    await self._context.apause(wait)
            except BaseException as error:
                self._withdraw(entry, error)
                raise
            self._numbers.append(entry.number)
        self._step(1)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._step(-1)
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

    def _is_first(self) -> bool:
        return self._key not in _inside.get()

    def _step(self, step: int) -> None:
        levels = dict(_inside.get())
        levels[self._key] = levels.get(self._key, 0) + step
        if levels[self._key] <= 0:
            del levels[self._key]
        _inside.set(levels)

    def _wait(self, answer: Any, deadline: float) -> float | None:
        """None: we are in. Else how long to wait before asking again; Snooze if that is not worth it."""
        entered = from_json(Entered, answer)
        if entered.admitted:
            return None
        wait = max(entered.retry_in, SHORTEST_WAIT_SECONDS)
        if wait > deadline - time.monotonic():
            raise Snooze(min(wait, LONGEST_SNOOZE_SECONDS), f"source {self.name}: {entered.reason}")
        return min(wait * random.uniform(1.0, 1.1), deadline - time.monotonic())  # not all in the same moment

    def _withdraw(self, entry: Entry, error: BaseException) -> None:
        """The answer to an ask that was given up may be yes. What the engine itself has answered needs no more."""
        asking = self._context.asking
        if asking is not None and not isinstance(error, Snooze | HoldfastError):
            asking.tell(Verb.LEAVE, to_json(Leaving(entry.source, entry.number)))

    def _leaving(self, error: BaseException | None) -> Leaving | None:
        """None inside another block of this source, which speaks for both."""
        if not self._is_first() or not self._numbers:
            return None
        leaving = Leaving(self.name, self._numbers.pop(), *_ending(self._context, error))
        if leaving.end is End.THROTTLED and error is not None:
            self._context.note_throttle(error)
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
        place = Place(self._context.log, self.name, key, ttl)
        if place.look(self._try(Verb.CACHED, place.question)):
            return place.value
        if self._is_first():
            with self:
                value = fn()
        else:
            value = fn()
        if place.takes(value):
            self._try(Verb.KEEP_CACHED, place.kept)
        return place.value

    async def acached(self, key: Any, fn: Callable[[], Awaitable[Any]], ttl: Duration | None = None) -> Any:
        """The same for a coroutine function."""
        place = Place(self._context.log, self.name, key, ttl)
        if place.look(await self._atry(Verb.CACHED, place.question)):
            return place.value
        if self._is_first():
            async with self:
                value = await fn()
        else:
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


def _ending(context: Governed, error: BaseException | None) -> tuple[End, str, bool, float]:
    """What the end of a block says about its source: how, and of a failure its code and whether trying again helps."""
    match error:
        case None:
            return End.SUCCEEDED, "", True, 0.0
        case _ if context.has_told(error):  # a block inside this one, of the source that it was meant for
            return End.NOTHING, "", True, 0.0
        case RetryAfter():
            return End.THROTTLED, "", True, error.delay_seconds
        case Snooze() | Cancel() | LeaseLost() | StoreUnavailable() | MemoryError():
            return End.NOTHING, "", True, 0.0
        case Permanent(error=BaseException() as cause):
            return End.FAILED, type(cause).__name__, False, 0.0
        case Permanent():
            return End.FAILED, type(error).__name__, False, 0.0
        case Exception():
            if (seconds := asked_for(error)) is not None:
                return End.THROTTLED, "", True, seconds
            return End.FAILED, type(error).__name__, not isinstance(error, context.no_retry), 0.0
        case _:  # KeyboardInterrupt, CancelledError and their like
            return End.NOTHING, "", True, 0.0
