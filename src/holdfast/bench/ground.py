"""The queue that a run has to itself, and how everything goes again.

Everything that a run makes is in that queue. At the end its jobs are cancelled where they wait, pruned, and their
histories retired, by the verbs that retention uses; so the audit log tells of no job that is not there, and `verify`
has nothing to say. What the fleet's minutes say of the queue goes too; in the sums over all queues it stays.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable

from sqlalchemy import and_, delete, or_, select, text

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.outcome import Released, Report
from holdfast.domain.retention import Group, Kept
from holdfast.stores.schema import CLAIMABLE_SQL, in_states, jobs, minutes
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.retention import FOUND

PREFIX = "holdfast-bench-"
TASK = "holdfast-bench"
STAMPED = "holdfast-bench-stamped"
BATCH = 1_000
FORGOTTEN_SECONDS = 3_600.0  # a run of that age has been killed
PATIENCE_SECONDS = 75.0  # for a lease whose holder was killed, or for another who is retiring histories
LOOK_SECONDS = 0.2


def queue_name() -> str:
    return f"{PREFIX}{int(time.time()):x}-{secrets.token_hex(3)}"


class Ground:
    def __init__(self, store: SqlStore, queue: str) -> None:
        self.store = store
        self.queue = queue
        self.worker = f"{queue}-raw"

    def new_jobs(self, count: int) -> list[NewJob]:
        return [NewJob(task=TASK, queue=self.queue) for _ in range(count)]

    def is_busy(self) -> bool:
        """Is there a job that waits or runs?"""
        return bool(self._active(1))

    def clear(self, told: Callable[[int], None] = lambda _count: None) -> bool:
        """Remove all of it; False when something would not go. It may be called again and again."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._end_active():
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        pruned = 0
        for state in TERMINAL:
            while gone := self.store.prune(Group(Kept.JOBS, self.queue, state, 0.0), BATCH).ids:
                pruned += len(gone)
                told(pruned)
        while self._retire(told):
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        self._forget_minutes()
        return not self._has_ended_jobs()

    def _active(self, limit: int) -> list[str]:
        """By the indexes that claims and reapers use: in a table of any size it costs no more than what is found."""
        found: list[str] = []
        with self.store.database.engine.connect() as connection:
            for states in (CLAIMABLE_SQL, "state = 'running'"):
                wanted = select(jobs.c.id).where(jobs.c.queue == self.queue, text(states)).limit(limit - len(found))
                found += [str(job_id) for job_id in connection.scalars(wanted)]
                if len(found) == limit:
                    break
        return found

    def _end_active(self) -> bool:
        """Cancel what waits; take over what a worker left behind when it was killed. Is there more to wait for?"""
        lost = self.store.recover(self.worker)
        released = [Report(job.job_id, job.attempt, job.lease_token, Released("bench is over")) for job in lost]
        if released:
            self.store.settle(released)
        while ids := self._active(BATCH):
            answers = self.store.cancel(ids)
            running = [answer.job_id for answer in answers if answer.state is State.RUNNING]
            for job_id in running:
                self.store.claim_job(self.worker, job_id)  # reaps it, once its lease is over: it is cancelled then
            if len(running) == len(ids):
                return True
        return False

    def _retire(self, told: Callable[[int], None]) -> bool:
        """Is there more, behind somebody else who is at the door of the audit log?"""
        retired = 0
        for state in TERMINAL:
            while gone := self.store.retire(Group(Kept.HISTORIES, self.queue, state, 0.0), BATCH).jobs:
                retired += gone
                told(retired)
        with self.store.database.reading() as transaction:
            return any(row[0] == self.queue for row in transaction.rows(FOUND[Kept.HISTORIES]))

    def _has_ended_jobs(self) -> bool:
        """Somebody's transaction may have locked a row: pruning passes over it."""
        ended = select(jobs.c.id).where(jobs.c.queue == self.queue, text(in_states(TERMINAL))).limit(1)
        with self.store.database.engine.connect() as connection:
            return connection.scalar(ended) is not None

    def _forget_minutes(self) -> None:
        names = or_(
            and_(minutes.c.kind == "queue", minutes.c.name == self.queue),
            and_(minutes.c.kind == "task", minutes.c.name.in_((TASK, STAMPED))),
        )
        with self.store.database.engine.begin() as connection:
            connection.execute(delete(minutes).where(names))


def forgotten(store: SqlStore) -> list[str]:
    """Queues of runs that were killed: nothing else ends without clearing up."""
    oldest = time.time() - FORGOTTEN_SECONDS
    names = set(store.offered_queues())
    with store.database.reading() as transaction:
        for what in Kept:
            names.update(row[0] for row in transaction.rows(FOUND[what]))
    return sorted(name for name in names if (began := _began(name)) is not None and began < oldest)


def _began(queue: str) -> float | None:
    found = re.fullmatch(rf"{PREFIX}([0-9a-f]+)-[0-9a-f]{{6}}", queue)
    return None if found is None else float(int(found[1], 16))
