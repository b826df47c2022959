"""Somebody who does everything one can do to a store, in an order drawn by lot."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.domain.answers import Beat, Operated, Status
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore

AT_ONCE = RetryPolicy(kind="fixed", base=0.0, jitter=0.0)
LONG = 3600.0
OUTCOMES: tuple[Outcome, ...] = (Succeeded(), Failed(JobError("flaky", "try again")), Released())


class Meddler:
    """Every call must be answered; what the answers say is for the audit log to confirm."""

    def __init__(self, store: SqlStore, number: int) -> None:
        self._store = store
        self._name = f"meddler-{number}"
        self._chance = random.Random(number)
        self._jobs: list[str] = []
        self._leases: list[Claimed] = []
        self._verbs: tuple[Callable[[], None], ...] = (
            self.enqueue,
            self.claim,
            self.claim_one,
            self.heartbeat,
            self.settle,
            self.cancel,
            self.requeue,
            self.reap,
            self.read,
        )

    def meddle(self, operations: int) -> None:
        for verb in self._chance.choices(self._verbs, weights=(4, 4, 1, 2, 4, 1, 1, 1, 2), k=operations):
            verb()

    def enqueue(self) -> None:
        new = [NewJob(task="meddle", payload={"by": self._name}, retry=AT_ONCE) for _ in range(self._some())]
        self._jobs += [answer.id for answer in self._store.enqueue_many(new)]

    def claim(self) -> None:
        self._leases += self._store.claim(self._name, self._some())

    def claim_one(self) -> None:
        if self._jobs and (claimed := self._store.claim_job(self._name, self._chance.choice(self._jobs))):
            self._leases.append(claimed)

    def heartbeat(self) -> None:
        beats = [Beat(job.job_id, job.attempt, job.lease_token, self._name) for job in self._leases]
        for answer in self._store.heartbeat(beats):
            assert answer.status in (Status.APPLIED, Status.BUSY)

    def settle(self) -> None:
        self._chance.shuffle(self._leases)
        cut = self._some()
        batch, self._leases = self._leases[:cut], self._leases[cut:]
        reports = [Report(job.job_id, job.attempt, job.lease_token, self._outcome(), self._name) for job in batch]
        for answer in self._store.settle(reports):
            assert answer.status in (Status.APPLIED, Status.BUSY)

    def cancel(self) -> None:
        for answer in self._store.cancel(self._sample()):
            assert answer.did in (Operated.CANCELLED, Operated.CANCEL_REQUESTED, Operated.WRONG_STATE)

    def requeue(self) -> None:
        self._store.requeue(self._sample())

    def reap(self) -> None:
        self._store.reap(self._name, period=0, lease_seconds=LONG, heartbeat_seconds=0)

    def read(self) -> None:
        self._store.queues()
        page = self._store.jobs(states=[State.RUNNING], limit=20)
        for job in page.items[:3]:
            assert self._store.events(job.id)
            assert self._store.attempts(job.id)

    def _sample(self) -> list[str]:
        return self._chance.sample(self._jobs, min(len(self._jobs), self._some()))

    def _some(self) -> int:
        return self._chance.randint(1, 20)

    def _outcome(self) -> Outcome:
        return self._chance.choice(OUTCOMES)
