"""The store over HTTP: what a worker, a client and an operator do, by asking a control plane.

What is done for all workers together, reaping, schedules and upkeep, is the control plane's: here it is never this
worker's turn. What has no form over HTTP says so when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.answers import Brought, Reaped
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Claimed, ClaimedJobs, Enqueued, NewJob
from holdfast.domain.schedule import Fired
from holdfast.remote.claims import MOST_AT_ONCE, Claims
from holdfast.remote.enqueueing import Enqueueing
from holdfast.remote.governing import Governing
from holdfast.remote.leases import OF_THIS_PROCESS
from holdfast.remote.line import Line
from holdfast.remote.reading import Reading
from holdfast.remote.watching import Watching
from holdfast.remote.work import WORKER, Work


class RemoteStore(Enqueueing, Work, Governing, Reading, Watching):
    """`open_line` opens a way with so many connections; claims wait on one of their own."""

    def __init__(
        self,
        open_line: Callable[[int], Line],
        connections: int,
        claim_seconds: float,
        new_ids: Callable[[int], list[str]],
    ) -> None:
        self._line = open_line(connections)
        self._new_ids = new_ids
        self._store_id: str | None = None
        self._leases = OF_THIS_PROCESS
        self._claims = Claims(lambda: open_line(1), self._line, claim_seconds, self._leases)
        self._not_our_tasks: set[str] = set()
        self._not_our_schedules: set[str] = set()
        self._may_not_declare = False

    @property
    def place(self) -> str:
        return self._line.place

    def close(self) -> None:
        self._claims.close()
        self._line.close()

    # claims

    def claim(
        self,
        worker: str,
        limit: int = 1,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        *,
        credential: str = "",  # noqa: ARG002 - the control plane knows whose token this is
        request_id: str | None = None,
    ) -> ClaimedJobs:
        """More than one answer holds is asked for in several questions, each with an id of its own."""
        brought = self._claims.claim(worker, limit, queues, tasks, request_id)
        jobs = brought.jobs
        while MOST_AT_ONCE <= len(jobs) < limit and request_id is None:
            more = self._claims.claim(worker, limit - len(jobs), queues, tasks).jobs
            jobs += more
            if len(more) < MOST_AT_ONCE:
                break
        found = ClaimedJobs(jobs)
        found.again_in = brought.again_in
        return found

    def claim_within(
        self,
        seconds: float,
        worker: str,
        limit: int,
        queues: Sequence[str] | None,
        tasks: Sequence[str] | None,
    ) -> Brought:
        """Wait so long for something to claim."""
        return self._claims.claim(worker, limit, queues, tasks, wait_seconds=seconds)

    def stop_waiting(self) -> None:
        self._claims.stop_waiting()

    def recover(self, worker: str) -> list[Claimed]:  # noqa: ARG002 - each lost claim remembers whose it was
        return self._claims.recover()

    # the control plane's own

    def reap(self, holder: str, **_timing: float) -> Reaped:  # noqa: ARG002
        return Reaped(False)

    def fire_schedules(self, holder: str, *, lease_seconds: float = 0.0) -> Fired:  # noqa: ARG002
        return Fired()

    def forget_workers(self, age_seconds: float = 0.0) -> int:  # noqa: ARG002
        return 0

    def roll_up(self, holder: str) -> None:  # noqa: ARG002
        return None

    def take_turn(self, name: str, holder: str, period: float) -> bool:  # noqa: ARG002
        return False

    def keep_turn(self, name: str, holder: str) -> bool:  # noqa: ARG002
        return False

    # records

    def store_id(self) -> str:
        """Of the store behind it, under which files of its jobs are kept."""
        if self._store_id is None:
            self._store_id = str(self._line.get(f"{WORKER}/store")["store_id"])
        return self._store_id

    async def aenqueue_many(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        return self.enqueue_many(jobs, connection)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ConfigurationError(
            f"{name.replace('_', ' ')}: this needs the database itself and has no form over HTTP; give a postgresql://"
            " or sqlite:/// URL"
        )
