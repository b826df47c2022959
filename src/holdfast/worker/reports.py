"""Outcomes on their way to the store: everything that ended while the last batch was under way is the next batch.

A report is kept until the store has answered it. Asking twice is safe: the same report under the same token gets the
same answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from holdfast.domain.answers import Settled, Status
from holdfast.domain.errors import NotFound, StoreUnavailable
from holdfast.domain.events import Events, RunEnded
from holdfast.domain.lifecycle import CLAIMABLE, State
from holdfast.domain.outcome import Failed, JobError, Outcome, Report, Succeeded, Usage
from holdfast.ports import Store
from holdfast.worker.desk import Desk, Refusal
from holdfast.worker.leases import Held
from holdfast.worker.part import NEVER
from holdfast.worker.retrying import Retrying

BATCH = 500
ROLLED_BACK = JobError(
    "complete_in_rolled_back",
    "the task called ctx.complete_in, and then the transaction it was given was rolled back or never committed",
)


@dataclass(frozen=True, slots=True)
class Ended:
    """With `completed_in` the task has finished the job in a transaction of its own; `outcome` is what it did after
    that, and counts if the transaction turns out to be rolled back."""

    held: Held
    outcome: Outcome
    usage: Usage
    completed_in: bool = False

    def report(self, outcome: Outcome, worker: str) -> Report:
        job = self.held.job
        return Report(job.job_id, job.attempt, job.lease_token, outcome, worker, self.usage)


class Reports:
    def __init__(
        self,
        store: Callable[[], Store],
        worker: str,
        events: Events,
        ring: Callable[[], None],
        settled: Callable[[Ended, Settled], None],
        retrying: Retrying,
    ) -> None:
        self._settling = Settling(store, worker)
        self._desk: Desk[list[Ended], list[Settled]] = Desk("reports", self._settling, ring)
        self._events = events
        self._settled = settled
        self._retrying = retrying
        self._waiting: list[Ended] = []
        self._asked: list[Ended] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked)

    def add(self, ended: Ended) -> None:
        self._waiting.append(ended)

    def step(self, now: float) -> None:
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            self._put_back(self._asked)
            self._retrying.failed(now, answer.error)
        elif answer is not None:
            self._retrying.worked(now)
            self._take(answer, now)
        if self._waiting and not self._desk.busy and now >= self._retrying.not_before:
            self._asked, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            self._desk.ask(self._asked)

    def wake_at(self) -> float:
        return self._retrying.not_before if self._waiting and not self._desk.busy else NEVER

    def close(self) -> None:
        self._desk.close()

    def _put_back(self, asked: list[Ended]) -> None:
        self._waiting = asked + self._waiting
        self._asked = []

    def _take(self, answers: Sequence[Settled], now: float) -> None:
        asked, self._asked = self._asked, []
        busy: list[Ended] = []
        for ended, answer in zip(asked, answers, strict=True):
            if answer.status is Status.BUSY:
                busy.append(ended)
            else:
                self._emit(ended, answer)
                self._settled(ended, answer)
        if busy:
            self._waiting = busy + self._waiting
            self._retrying.not_before = now + 0.05

    def _emit(self, ended: Ended, answer: Settled) -> None:
        job, outcome = ended.held.job, ended.outcome
        self._events.emit(
            RunEnded(
                job.job_id,
                job.attempt,
                job.task,
                job.queue,
                type(outcome).__name__.lower(),
                str(answer.status),
                answer.event,
                ended.usage.duration_ms,
                outcome.error.message if isinstance(outcome, Failed) else None,
            )
        )


def claimable_again(answer: Settled) -> bool:
    return answer.ok and answer.state in CLAIMABLE


class Settling:
    """The desk's side: one settling statement for the batch; where the batch cannot be sent, one by one."""

    def __init__(self, store: Callable[[], Store], worker: str) -> None:
        self._store = store
        self._worker = worker

    def __call__(self, batch: list[Ended]) -> list[Settled]:
        store = self._store()
        known: dict[int, Settled] = {}
        reports: dict[int, Report] = {}
        for place, ended in enumerate(batch):
            finished = self._completed(store, ended) if ended.completed_in else None
            if finished is not None:
                known[place] = finished
            else:
                reports[place] = ended.report(_after_rollback(ended), self._worker)
        known |= dict(zip(reports, self._settle(store, list(reports.values())), strict=True))
        return [known[place] for place in range(len(batch))]

    def _settle(self, store: Store, reports: list[Report]) -> list[Settled]:
        try:
            return store.settle(reports)
        except StoreUnavailable:
            raise
        except Exception:
            # One report that cannot be stored must not keep its neighbours from being stored.
            return [_settle_one(store, report) for report in reports]

    def _completed(self, store: Store, ended: Ended) -> Settled | None:
        """Did the task's own transaction commit? Then the job is no longer running under our attempt."""
        job = ended.held.job
        try:
            found = store.job(job.job_id)
        except NotFound:
            return Settled(job.job_id, job.attempt, Status.APPLIED)
        if found.state is State.RUNNING and found.attempt == job.attempt:
            return None
        return Settled(job.job_id, job.attempt, Status.APPLIED, found.transition, found.state)


def _after_rollback(ended: Ended) -> Outcome:
    succeeded = ended.completed_in and isinstance(ended.outcome, Succeeded)
    return Failed(ROLLED_BACK) if succeeded else ended.outcome


def _settle_one(store: Store, report: Report) -> Settled:
    try:
        return store.settle([report])[0]
    except StoreUnavailable:
        raise
    except Exception as problem:
        error = JobError("unstorable_result", str(problem), retryable=False)
        return store.settle([replace(report, outcome=Failed(error))])[0]
