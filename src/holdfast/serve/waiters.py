"""Who waits for a job: what is asked for, and everybody who is to hear the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.domain.job import Claimed


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
    """What a claim brought; `asked_at` is when its transaction began, `again_in` as `ClaimedJobs` has it."""

    jobs: list[Claimed]
    asked_at: float
    again_in: float | None = None


@dataclass(eq=False, slots=True)
class Poll:
    """One HTTP request that waits. A request that was sent twice is two of them, each with a time of its own."""

    future: asyncio.Future[Found]
    due: bool = False  # its time is over: the next empty answer is its own
    joined: int = 0
    looked_for: bool = False  # a question that began after it had joined came back empty

    @property
    def waits(self) -> bool:
        return not self.future.done()

    def answer(self, found: Found) -> None:
        if self.waits:
            self.future.set_result(found)

    def fail(self, error: Exception) -> None:
        if self.waits:
            self.future.set_exception(error)


@dataclass(eq=False, slots=True)
class Waiter:
    """What is claimed for once."""

    wanted: Wanted
    polls: list[Poll] = field(default_factory=list)
    asking: bool = False

    @property
    def waits(self) -> bool:
        return any(poll.waits for poll in self.polls)

    def each(self, tell: Callable[[Poll], None]) -> None:
        for poll in list(self.polls):
            tell(poll)

    def answer(self, found: Found) -> None:
        self.each(lambda poll: poll.answer(found))

    def fail(self, error: Exception) -> None:
        self.each(lambda poll: poll.fail(error))
