"""A store that also tells a message queue of what was enqueued, after the commit. Nothing depends on it: a job that no
message names is offered later, by the sweep, or claimed by a worker that polls.

Jobs that were enqueued in the user's own transaction are not told of: nobody here knows whether, or when, it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.domain.offers import Offer

if TYPE_CHECKING:
    from holdfast.domain.job import Enqueued, NewJob
    from holdfast.tasks.home import AppStore

# Of one call: the caller waits for it. The sweep sees to the others.
MOST_AT_ONCE = 100
FIRST_SEQ = 1


class OfferingStore:
    """`offer` never raises, and takes a bounded time."""

    def __init__(self, store: AppStore, offer: Callable[[Sequence[Offer]], None], close: Callable[[], None]) -> None:
        self._store = store
        self._offer = offer
        self._close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued:
        return self.enqueue_many([job], connection)[0]

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        jobs = list(jobs)  # each is looked at again
        answers = self._store.enqueue_many(jobs, connection)
        if connection is None and (offers := _offers(jobs, answers)):
            self._offer(offers[:MOST_AT_ONCE])
        return answers

    def close(self) -> None:
        self._close()
        self._store.close()


def _offers(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Offer]:
    now = datetime.now(UTC)
    return [
        Offer(answer.id, job.queue, FIRST_SEQ, job.task, claimable=True)
        for job, answer in zip(jobs, answers, strict=True)
        if answer.created and not job.delay and (job.run_after is None or job.run_after <= now)
    ]
