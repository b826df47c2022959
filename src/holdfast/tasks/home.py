"""What a task and a handle need of the app that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.ports import ArtifactStore, Store

if TYPE_CHECKING:
    from holdfast.domain.job import Enqueued, Job, NewJob


class AppStore(Store, Protocol):
    """The port, and enqueueing on the user's own async connection."""

    async def aenqueue_many(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]: ...


class Home(Protocol):
    @property
    def store(self) -> AppStore: ...

    @property
    def lease_seconds(self) -> float: ...

    @property
    def artifact_store(self) -> ArtifactStore: ...

    def result_of(self, job: Job) -> Any: ...
