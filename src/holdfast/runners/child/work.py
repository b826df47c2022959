"""One job inside a runner, from its arrival to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import ConfigurationError
from holdfast.forks import after_fork
from holdfast.ports import ArtifactStore
from holdfast.runners.child.asking import Asks, JobAsks
from holdfast.runners.child.channel import JobChannel, Outbox
from holdfast.runners.frames import OVER_HTTP
from holdfast.tasks.context import Context, JobInfo
from holdfast.tasks.saving import Saves

if TYPE_CHECKING:
    from holdfast.domain.outcome import Report
    from holdfast.tasks.tracing import AttemptTrace

Files = Callable[[], ArtifactStore]


class Work:
    """`wake` is set by whoever can be interrupted while it waits, before it looks at `context.cancelled`."""

    __slots__ = ("asks", "channel", "context", "due_seconds", "id", "is_entered", "job", "trace", "wake")

    def __init__(self, job: dict[str, Any], outbox: Outbox, asks: Asks, files: Files | None = None) -> None:
        self.id: str = job["id"]
        self.job = JobInfo(
            id=job["job_id"],
            task=job["task"],
            payload=job["payload"],
            attempt=job["attempt"],
            version=job["version"],
            queue=job["queue"],
            source=job["source"],
            timeout_seconds=job["timeout"],
            lease_seconds=job["lease"],
            traceparent=job["traceparent"],
        )
        self.channel = JobChannel(self.id, outbox)
        self.asks = JobAsks(self.id, asks)
        channel = self.channel
        saves = None if files is None else Saves(self.job.id, self.job.attempt, files, channel.saved, channel.later)
        self.context = Context(self.job, self.channel, job["token"], complete=_complete, saves=saves, asking=self.asks)
        self.wake: Callable[[], object] | None = None
        self.is_entered = False
        self.due_seconds: float | None = job.get("due")
        self.trace: AttemptTrace | None = None  # if its span is made here

    def cancel(self, reason: str) -> None:
        self.context.request_cancel(reason)
        self.asks.stop(self.context.stopped)
        if (wake := self.wake) is not None:
            wake()

    def lose_lease(self) -> None:
        self.context.lose_lease()
        self.asks.stop(self.context.stopped)


class LazyFiles:
    """Opened when the first job saves something; most never do."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._store: ArtifactStore | None = None
        after_fork(self._after_fork)

    def _after_fork(self) -> None:
        self._store = None

    def __call__(self) -> ArtifactStore:
        if self._store is None:
            from holdfast.artifacts.opening import open_artifacts

            self._store = open_artifacts(self.root)
        return self._store


def _complete(connection: Any, report: Report) -> None:
    # The only way from a runner to a store, for a task that finishes its job in a transaction of its own.
    if os.environ.get(OVER_HTTP):
        raise ConfigurationError(
            "ctx.complete_in needs a worker on the database itself: this one works over HTTP, where a lease belongs to"
            " its token. Return the result instead, or run this task by a worker with --database."
        )
    from holdfast.wiring.sql import complete_in

    complete_in(connection, report)
