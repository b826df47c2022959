"""Long polls: whoever waits for a job waits here, without a thread, a connection or a transaction of its own.

Polls that ask for the same thing stand in one line (`lines.py`). The hub has the lines, rings them when the store says
that there may be work, and answers everybody when the server stops. A poll that is sent again gets the answer it got
first (`repeats.py`); a job that was claimed and reached nobody is given back (`giving_back.py`), unless a request id
lets its client ask for it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence

from holdfast.domain.errors import RequestBusy
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Failed, JobError
from holdfast.ports import Store
from holdfast.serve.budget import Budget
from holdfast.serve.giving_back import LOST, GivingBack
from holdfast.serve.lines import Found, Line, Poll, Waiter, Wanted
from holdfast.serve.repeats import Repeats
from holdfast.tasks.arguments import InvalidArguments, decodable

Key = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


class Hub:
    def __init__(self, claims: Budget, control: Budget, poll_seconds: float) -> None:
        self._claims = claims
        self._poll_seconds = poll_seconds
        self._repeats = Repeats(claims, poll_seconds)
        self._giving_back = GivingBack(claims, control, poll_seconds)
        self._lines: dict[Key, Line] = {}
        self._stopping = asyncio.Event()

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    async def claim(self, wanted: Wanted, wait_seconds: float, gone: Awaitable[None]) -> Found:
        """The first jobs there are for it, or none when its time is over. `gone` ends when its client has."""
        leaving = asyncio.ensure_future(gone)
        try:
            found = await self._repeats.answer_before(wanted)
            if found is not None and found.jobs and self._repeats.is_unheard(wanted):
                self._giving_back.end(wanted, found.jobs, LOST)
                found = Found([], found.asked_at)
            if found is None:
                found = await self._wait(wanted, wait_seconds, leaving)
            elif not found.jobs:
                found = await self._wait_for_nothing(wait_seconds, leaving)
            if found.jobs and leaving.done() and wanted.request_id is None:
                self._giving_back.client_gone(wanted, found.jobs)
                return Found([], found.asked_at)
            return found
        finally:
            leaving.cancel()

    def fail_undecodable(self, wanted: Wanted, jobs: Sequence[Claimed]) -> None:
        """A payload that cannot be decoded cannot be sent: those jobs end here, and the others are not held up."""
        for job in jobs:
            try:
                decodable(job.payload)
            except InvalidArguments as error:
                failed = Failed(JobError("invalid_arguments", str(error), retryable=False))
                self._giving_back.end(wanted, [job], failed)

    def ring(self) -> None:
        """In the server's loop: there may be something to claim."""
        for line in list(self._lines.values()):
            line.ring()

    def stop(self) -> None:
        self._stopping.set()
        for line in list(self._lines.values()):
            line.stop()

    async def close(self) -> None:
        """Once nobody waits any more."""
        self.stop()
        self._repeats.close()
        await self._giving_back.close()

    async def _wait(self, wanted: Wanted, wait_seconds: float, leaving: asyncio.Future[None]) -> Found:
        if self._stopping.is_set():
            return Found([], time.monotonic())
        loop = asyncio.get_running_loop()
        poll = Poll(loop.create_future(), due=wait_seconds <= 0)
        waiter, line = self._joined(wanted, poll)
        timer = loop.call_later(wait_seconds, line.time_is_over, waiter, poll)
        try:
            await asyncio.wait((poll.future, leaving), return_when=asyncio.FIRST_COMPLETED)
            if poll.waits and self._left(waiter, poll, line):
                return Found([], time.monotonic())
            return await poll.future
        finally:
            timer.cancel()
            self._tidy(waiter, poll, line)

    async def _wait_for_nothing(self, wait_seconds: float, leaving: asyncio.Future[None]) -> Found:
        """All that the request was granted is over, and it gets nothing else. It takes the time it was given for that:
        a client that goes on using one id must not go round in circles."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((leaving, stopping), timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        return Found([], time.monotonic())

    def _joined(self, wanted: Wanted, poll: Poll) -> tuple[Waiter, Line]:
        key = _key(wanted)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(self._ask, self._late, self._poll_seconds, self._claims.threads)
        waiter = self._repeats.waiter(wanted)
        if waiter is None or not line.has(waiter):
            waiter = Waiter(wanted)
            self._repeats.add(waiter)
        line.join(waiter, poll)  # if it was sent again while its first poll still waits: one claim for both
        return waiter, line

    def _left(self, waiter: Waiter, poll: Poll, line: Line) -> bool:
        """True when no claim is under way for it: then nothing is claimed for a client that has gone."""
        if len(waiter.polls) > 1:
            waiter.polls.remove(poll)
            return True
        poll.due = True  # a claim that comes back empty is then its last
        return line.leave(waiter)

    def _tidy(self, waiter: Waiter, poll: Poll, line: Line) -> None:
        if poll in waiter.polls:
            waiter.polls.remove(poll)
        if not waiter.polls:
            line.leave(waiter)
            self._repeats.remove(waiter)
        key = _key(waiter.wanted)
        if not len(line) and self._lines.get(key) is line:
            del self._lines[key]

    def _late(self, wanted: Wanted, jobs: list[Claimed]) -> None:
        """Whoever has a request id was told to ask again, and gets them then."""
        if wanted.request_id is None:
            self._giving_back.client_gone(wanted, jobs)

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
            return Found(jobs, asked_at, jobs.again_in)

        try:
            return await self._claims.call(claim)
        except RequestBusy:
            raise
        except Exception:
            if wanted.request_id is None:
                self._giving_back.answer_lost(wanted)
            raise


def _key(wanted: Wanted) -> Key:
    return (wanted.queues, wanted.tasks)
