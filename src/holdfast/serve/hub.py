"""Long polls: whoever waits for a job waits here, without a thread, a connection or a transaction of its own.

Polls that ask for the same thing stand in one line (`lines.py`). The hub has the lines, rings them when the store says
that there may be work, and answers everybody when the server stops. A poll that is sent again gets the answer it got
first (`repeats.py`); a job that was claimed and reached nobody is given back (`giving_back.py`), unless a request id
lets its client ask for it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from holdfast.domain.errors import StoreUnavailable
from holdfast.ports import Store
from holdfast.serve.budget import Budget
from holdfast.serve.giving_back import GivingBack
from holdfast.serve.lines import Found, Line, Waiter, Wanted
from holdfast.serve.repeats import Repeats

Key = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


class Hub:
    def __init__(self, claims: Budget, control: Budget, poll_seconds: float) -> None:
        self._claims = claims
        self._poll_seconds = poll_seconds
        self._repeats = Repeats(claims, poll_seconds)
        self._giving_back = GivingBack(claims, control, poll_seconds)
        self._lines: dict[Key, Line] = {}
        self._stopped = False

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    async def claim(self, wanted: Wanted, wait_seconds: float, gone: Awaitable[None]) -> Found:
        """The first jobs there are for it, or none when its time is over. `gone` ends when its client has."""
        leaving = asyncio.ensure_future(gone)
        try:
            found = await self._repeats.answer_before(wanted)
            if found is None:
                found = await self._wait(wanted, wait_seconds, leaving)
            if found.jobs and leaving.done() and wanted.request_id is None:
                self._giving_back.client_gone(wanted, found.jobs)
                return Found([], found.asked_at)
            return found
        finally:
            leaving.cancel()

    def ring(self) -> None:
        """In the server's loop: there may be something to claim."""
        for line in list(self._lines.values()):
            line.ring()

    def stop(self) -> None:
        self._stopped = True
        for line in list(self._lines.values()):
            line.stop()

    async def close(self) -> None:
        """Once nobody waits any more."""
        self.stop()
        self._repeats.close()
        await self._giving_back.close()

    async def _wait(self, wanted: Wanted, wait_seconds: float, leaving: asyncio.Future[None]) -> Found:
        if self._stopped:
            return Found([], time.monotonic())
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = loop.create_future()
        waiter, line = self._joined(wanted, future, due=wait_seconds <= 0)
        timer = loop.call_later(wait_seconds, line.time_is_over, waiter)
        try:
            await asyncio.wait((future, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not future.done() and self._left(waiter, future, line):
                return Found([], time.monotonic())
            return await future
        finally:
            timer.cancel()
            self._tidy(waiter, future, line)

    def _joined(self, wanted: Wanted, future: asyncio.Future[Found], *, due: bool) -> tuple[Waiter, Line]:
        key = _key(wanted)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(self._ask, self._poll_seconds, self._claims.threads)
        waiter = self._repeats.waiter(wanted)
        if waiter is not None and line.has(waiter):
            waiter.futures.append(future)  # it was sent again while its first try still waits: one claim for both
            return waiter, line
        waiter = Waiter(wanted, [future], due)
        self._repeats.add(waiter)
        line.join(waiter)
        return waiter, line

    def _left(self, waiter: Waiter, future: asyncio.Future[Found], line: Line) -> bool:
        """True when no claim is under way for it: then nothing is claimed for a client that has gone."""
        if len(waiter.futures) > 1:
            waiter.futures.remove(future)
            return True
        waiter.due = True  # a claim that comes back empty is then its last
        return line.leave(waiter)

    def _tidy(self, waiter: Waiter, future: asyncio.Future[Found], line: Line) -> None:
        if future in waiter.futures:
            waiter.futures.remove(future)
        if not waiter.futures:
            line.leave(waiter)
            self._repeats.remove(waiter)
        key = _key(waiter.wanted)
        if not len(line) and self._lines.get(key) is line:
            del self._lines[key]

    async def _ask(self, wanted: Wanted) -> Found:
        def claim(store: Store) -> Found:
            asked_at = time.monotonic()
            jobs = store.claim(
                wanted.worker,
                wanted.limit,
                wanted.queues,
                wanted.tasks,
                credential=wanted.credential,
                request_id=wanted.request_id,
            )
            return Found(jobs, asked_at)

        try:
            return await self._claims.call(claim)
        except StoreUnavailable:
            if wanted.request_id is None:
                self._giving_back.answer_lost(wanted)
            raise


def _key(wanted: Wanted) -> Key:
    return (wanted.queues, wanted.tasks)
