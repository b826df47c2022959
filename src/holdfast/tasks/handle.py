"""A job that was enqueued, as its enqueuer holds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from holdfast.domain import durations
from holdfast.domain.answers import Operated
from holdfast.domain.errors import JobCancelled, JobFailed, NotFound, StoreUnavailable
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.logs import LogLine
from holdfast.tasks.comparing import compare_jobs, original_of
from holdfast.tasks.following import follow, said
from holdfast.tasks.reading import find_artifact, read_artifact

if TYPE_CHECKING:
    from holdfast.domain.artifacts import Artifact
    from holdfast.domain.comparison import Comparison
    from holdfast.domain.job import Enqueued, Job
    from holdfast.tasks.home import Home

R = TypeVar("R")

FIRST_WAIT = 0.02
LONGEST_WAIT = 0.5


class Handle(Generic[R]):
    """`created` is false when an existing job stands in for the new one; `state` is the state at enqueue."""

    def __init__(self, home: Home, enqueued: Enqueued) -> None:
        self._home = home
        self.id = enqueued.id
        self.created = enqueued.created
        self.state = enqueued.state

    def job(self) -> Job:
        """The job as it is stored now."""
        return self._home.store.job(self.id)

    def progress(self) -> dict[str, Any] | None:
        """How far the job is, as it said last: done, and total and note if it gave them."""
        said: dict[str, Any] | None = self.job().progress
        return said

    def logs(self, attempt: int | None = None) -> list[LogLine]:
        """What the job has said until now, of one attempt or of all, in order."""
        return [line for line in said(self._home.store, self.id, attempt) if isinstance(line, LogLine)]

    def follow(self, attempt: int | None = None) -> Iterator[LogLine]:
        """The same, and then what comes, until the job ends."""
        return (line for line in follow(self._home.store, self.id, attempt) if isinstance(line, LogLine))

    def result(self, timeout: float | str | timedelta | None = None) -> R:
        """Wait for the job to end: its result, or JobFailed, JobCancelled, or TimeoutError when it takes longer."""
        job = self.job()
        for wait in _waits(timeout):
            if job.state in TERMINAL:
                break
            time.sleep(wait)
            job = self.job()
        return self._outcome(job, timeout)

    async def aresult(self, timeout: float | str | timedelta | None = None) -> R:
        import asyncio

        job = await asyncio.to_thread(self.job)
        for wait in _waits(timeout):
            if job.state in TERMINAL:
                break
            await asyncio.sleep(wait)
            job = await asyncio.to_thread(self.job)
        if job.result_ref is None:
            return self._outcome(job, timeout)
        return await asyncio.to_thread(self._outcome, job, timeout)  # a file is read

    def artifacts(self) -> list[Artifact]:
        """The files that its attempts saved, failed ones too; an attempt's are there when it has ended."""
        return self._home.store.artifacts(self.id)

    def read(self, name: str, attempt: int | None = None) -> bytes:
        """What was saved under this name, by the last attempt that did unless one is named."""
        return read_artifact(self._home.artifact_store, self._artifact(name, attempt))

    def open(self, name: str, attempt: int | None = None) -> BinaryIO:
        """The same as a file, for what is too large to have in memory at once. Its SHA-256 is the reader's to check."""
        return self._home.artifact_store.open(self._artifact(name, attempt).reference)

    def _artifact(self, name: str, attempt: int | None) -> Artifact:
        return find_artifact(self.id, self.artifacts(), name, attempt)

    def cancel(self) -> bool:
        """Cancel the job, or ask for it if it is running; False when it has succeeded or failed before."""
        answer = self._home.store.cancel([self.id])[0]
        if answer.did is Operated.NOT_FOUND:
            raise NotFound(f"there is no job {self.id}")
        if answer.did is Operated.BUSY:
            raise StoreUnavailable(f"job {self.id} is locked by another transaction; cancel it again")
        return answer.ok

    def replay(self) -> Handle[R]:
        """Run the same task with the same arguments and options again, as a new job that says whose replay it is."""
        return Handle(self._home, self._home.store.replay(self.id))

    def compare(self, other: Handle[Any] | None = None, *, tolerance: float = 0.0) -> Comparison:
        """How this job's outcome differs from that of another, by default of the one that it is a replay of."""
        store, job = self._home.store, self.job()
        first = original_of(store, job) if other is None else other.job()
        return compare_jobs(store, first, job, files=lambda: self._home.artifact_store, tolerance=tolerance)

    def _outcome(self, job: Job, timeout: Any) -> R:
        match job.state:
            case State.SUCCEEDED:
                result: R = self._home.result_of(job)
                return result
            case State.FAILED:
                raise JobFailed(job)
            case State.CANCELLED:
                raise JobCancelled(job)
            case _:
                raise TimeoutError(f"job {job.id} ({job.task}) is still {job.state} after {timeout}")

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, created={self.created}, state={str(self.state)!r})"


def _waits(timeout: float | str | timedelta | None) -> Iterator[float]:
    """How long to sleep before each further look: short at first, then longer, and no longer than is left."""
    deadline = None if timeout is None else time.monotonic() + durations.seconds(timeout, "timeout")
    wait = FIRST_WAIT
    while deadline is None or (left := deadline - time.monotonic()) > 0:
        yield wait if deadline is None else min(wait, left)
        wait = min(wait * 1.5, LONGEST_WAIT)
