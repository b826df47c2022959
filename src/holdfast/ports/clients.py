"""What a client asks of the store: to take jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.domain.job import Enqueued, NewJob
    from holdfast.domain.manifest import TaskInfo


class EnqueueStore(Protocol):
    """What a client needs."""

    def enqueue(self, job: NewJob, connection: Any = None) -> Enqueued: ...

    def enqueue_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]: ...

    def announced(self, name: str) -> TaskInfo | None: ...
