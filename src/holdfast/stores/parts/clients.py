"""What clients do: enqueue, alone, many at once, or in a transaction of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import (
    Enqueued,
    NewJob,
)
from holdfast.domain.manifest import TaskInfo
from holdfast.stores import claimable as claimable_now
from holdfast.stores.database import ContentCheck, Database
from holdfast.stores.verbs import (
    announcing,
    enqueueing,
)


class ClientPart:
    database: Database
    _claimable: Callable[[], None]

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        if connection is not None:
            return self.enqueue_many([job], connection)[0]
        with ContentCheck(self.database, "job"):
            answer = enqueueing.enqueue_one(self.database, job)
        if answer.created and claimable_now.is_due(job):
            self._claimable()
        return answer

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """All or nothing. With `connection`, in the user's own transaction: rollback means no job."""
        if connection is None:
            with ContentCheck(self.database, "jobs"):
                answers = enqueueing.enqueue(self.database, jobs)
            if claimable_now.by_enqueue(jobs, answers):
                self._claimable()
            return answers
        return enqueueing.enqueue_in(self.database.borrow(connection), list(jobs))

    async def aenqueue_many(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        """The same on an AsyncSession or AsyncConnection."""
        if not hasattr(connection, "run_sync"):
            raise InvalidInput(
                "connection", f"must be an AsyncSession or AsyncConnection, got {type(connection).__name__}"
            )
        borrow = self.database.borrow
        answers: list[Enqueued] = await connection.run_sync(lambda c: enqueueing.enqueue_in(borrow(c), jobs))
        return answers

    async def aenqueue(self, job: NewJob, connection: Any) -> Enqueued:
        return (await self.aenqueue_many([job], connection))[0]

    def announced(self, name: str) -> TaskInfo | None:
        return announcing.announced(self.database, name)
