"""Everything that a fault can be done to, and what shows that it is over: jobs that move on, a probe that gets through.

A probe is a job in a queue that the workers of one door have to themselves. It is enqueued past every proxy and must
come to its end: then that door is open again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import MAX_BUDGET, NewJob
from holdfast.domain.lifecycle import State
from holdfast.stores.ids import new_ids
from holdfast.stores.schema import jobs
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.torture.crew import Crew, Member
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Acknowledged, Intended, Notebook
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.skewed import SkewedClock

LOOK_SECONDS = 0.1
AWAY = (HoldfastError, SQLAlchemyError)  # how it is heard that the store is
PROBE = "tough.quick"
TOP_PRIORITY = 100


def probe_queue(door: str) -> str:
    return f"probe-{door}"


@dataclass(frozen=True, slots=True)
class HeldJob:
    id: str
    attempt: int


@dataclass(slots=True)
class Stage:
    ground: Ground
    store: SqlStore  # past every proxy
    crew: Crew
    ways: Mapping[str, FaultProxy]
    valkey: ValkeyServer | None
    clocks: Mapping[str, SkewedClock]  # by member
    notebook: Notebook
    lease_seconds: float
    stop: threading.Event = field(default_factory=threading.Event)
    # Of the servers that faults stop and start, one at a time.
    server: threading.Lock = field(default_factory=threading.Lock)

    def rest(self, seconds: float) -> None:
        """As long as a fault is to last; less when the run is broken off."""
        self.stop.wait(seconds)

    def held(self, member: Member) -> list[HeldJob]:
        """The jobs whose leases a member has now."""
        wanted = select(jobs.c.id, jobs.c.attempt).where(
            jobs.c.state == State.RUNNING, jobs.c.lease_owner.like(f"{member.name}-%")
        )
        with suppress(*AWAY), self.store.database.engine.connect() as connection:
            return [HeldJob(str(row.id), row.attempt) for row in connection.execute(wanted)]
        return []

    def wait_moved(self, held: Sequence[HeldJob], seconds: float) -> bool:
        """Until none of these leases is current any more."""
        left = {job.id: job.attempt for job in held}
        until = time.monotonic() + seconds
        while left:
            for job_id in self._moved(left):
                del left[job_id]
            if not left or time.monotonic() > until or self.stop.is_set():
                break
            time.sleep(LOOK_SECONDS)
        return not left

    def _moved(self, left: Mapping[str, int]) -> list[str]:
        wanted = select(jobs.c.id, jobs.c.state, jobs.c.attempt).where(jobs.c.id.in_(list(left)))
        try:
            with self.store.database.engine.connect() as connection:
                rows = connection.execute(wanted).all()
        except AWAY:  # the store is away: one of the faults
            return []
        return [str(row.id) for row in rows if row.state != State.RUNNING or row.attempt > left[str(row.id)]]

    def probe(self, door: str, seconds: float) -> bool:
        """Does a job get through this door?"""
        until = time.monotonic() + seconds
        job_id = new_ids(1)[0]
        self.notebook.write(Intended([job_id], PROBE))
        job = NewJob(
            task=PROBE,
            payload={"number": 0},
            queue=probe_queue(door),
            priority=TOP_PRIORITY,
            id=job_id,
            lease_seconds=self.lease_seconds,
            max_attempts=MAX_BUDGET,
            max_crashes=MAX_BUDGET,
        )
        is_accepted = False
        while not self.stop.is_set():
            with suppress(HoldfastError):
                if not is_accepted:
                    self.store.enqueue(job)
                    self.notebook.write(Acknowledged([job_id], PROBE, "database"))
                    is_accepted = True
                if self.store.job(job_id).state is State.SUCCEEDED:
                    return True
            if time.monotonic() > until:
                break
            time.sleep(LOOK_SECONDS)
        return False
