"""Outcomes on their way to the store: everything that ended while the last batch was under way is the next batch.

A report is kept until the store has answered it. Asking twice is safe: the same report under the same token gets the
same answer again. A report that the store does not take, whatever is left out of it, waits by itself; its neighbours do
not wait with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.domain.answers import Settled, Status
from holdfast.domain.artifacts import MOST_ARTIFACTS
from holdfast.domain.errors import NotFound, StoreUnavailable
from holdfast.domain.events import Events, Problem, RunEnded, RunSucceeded
from holdfast.domain.hot import hot_value
from holdfast.domain.lifecycle import CLAIMABLE, Event, State
from holdfast.domain.outcome import Failed, JobError, Outcome, Report, Succeeded, Usage
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.worker.leases import Held

BATCH = 500
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0  # of a report that was not taken, each time twice as long
ROLLED_BACK = JobError(
    "complete_in_rolled_back",
    "the task called ctx.complete_in, and then the transaction it was given was rolled back or never committed",
)


@hot_value(frozen=True, slots=True)
class Ended:
    """With `completed_in` the task has finished the job in a transaction of its own; `outcome` is what it did after
    that, and counts if the transaction turns out to be rolled back."""

    held: Held
    outcome: Outcome
    usage: Usage
    completed_in: bool = False

    def report(self, outcome: Outcome, worker: str) -> Report:
        job = self.held.job
        progress = self.held.progress if self.held.progress_waits else None
        saved = tuple(self.held.artifacts.values())
        return Report(
            job.job_id,
            job.attempt,
            job.lease_token,
            outcome,
            worker,
            self.usage,
            progress,
            saved,
            message_id=job.message_id,
            cache=self.held.cache,
        )


@hot_value(frozen=True, slots=True)
class Answered:
    """`problem`: why the report could not be stored as it was; with BUSY, not in any form."""

    settled: Settled
    problem: str | None = None


@dataclass(slots=True, eq=False)
class Stuck:
    ended: Ended
    again_at: float
    wait: float


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
        self._desk: Desk[list[Ended], list[Answered]] = Desk("reports", self._settling, ring)
        self._events = events
        self._settled = settled
        self._retrying = retrying
        self._waiting: list[Ended] = []
        self._asked: list[Ended] = []
        self._stuck: dict[int, Stuck] = {}  # by the identity of what ended; also while it is asked for again

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked) + len(self._idle())

    def add(self, ended: Ended) -> None:
        self._waiting.append(ended)

    def step(self, now: float) -> None:
        answer = self._desk.take()
        if answer is not None:
            for ended in self._asked:
                ended.held.reporting = False
        if isinstance(answer, Refusal):
            self._put_back(self._asked)
            self._retrying.failed(now, answer.error)
        elif answer is not None:
            self._retrying.worked(now)
            self._take(answer, now)
        if self._desk.busy or now < self._retrying.not_before:
            return
        self._waiting += [stuck.ended for stuck in self._idle() if now >= stuck.again_at]
        ready = [ended for ended in self._waiting if not ended.held.beating]
        if ready:
            self._ask(ready[: _fitting(ready)])

    def _ask(self, asked: list[Ended]) -> None:
        self._asked = asked
        taken = set(map(id, asked))
        self._waiting = [ended for ended in self._waiting if id(ended) not in taken]
        for ended in asked:
            ended.held.reporting = True
        self._desk.ask(asked)

    def wake_at(self) -> float:
        if self._desk.busy:
            return NEVER
        # Those whose heartbeat is on its way are woken by its answer.
        ready = any(not ended.held.beating for ended in self._waiting)
        due = 0.0 if ready else min((stuck.again_at for stuck in self._idle()), default=NEVER)
        return max(due, self._retrying.not_before)

    def close(self) -> None:
        self._desk.close()

    def _put_back(self, asked: list[Ended]) -> None:
        self._waiting = asked + self._waiting
        self._asked = []

    def _idle(self) -> list[Stuck]:
        if not self._stuck:
            return []
        moving = {id(ended) for ended in (*self._waiting, *self._asked)}
        return [stuck for key, stuck in self._stuck.items() if key not in moving]

    def _take(self, answers: Sequence[Answered], now: float) -> None:
        asked, self._asked = self._asked, []
        busy: list[Ended] = []
        for ended, answered in zip(asked, answers, strict=True):
            answer, problem = answered.settled, answered.problem
            if problem is not None and id(ended) not in self._stuck:
                job = ended.held.job
                self._events.emit(Problem("recording an attempt", problem, None, job.job_id, job.attempt))
            if answer.status is not Status.BUSY:
                self._stuck.pop(id(ended), None)
                self._emit(ended, answer)
                self._settled(ended, answer)
            elif problem is None:
                busy.append(ended)
            else:
                before = self._stuck.get(id(ended))
                wait = FIRST_WAIT_SECONDS if before is None else min(2 * before.wait, LONGEST_WAIT_SECONDS)
                self._stuck[id(ended)] = Stuck(ended, now + wait, wait)
        if busy:
            self._waiting = busy + self._waiting
            self._retrying.not_before = now + 0.05

    def _emit(self, ended: Ended, answer: Settled) -> None:
        job, outcome = ended.held.job, ended.outcome
        is_usual = answer.event == Event.SUCCEEDED and answer.status is Status.APPLIED
        kind = RunSucceeded if is_usual else RunEnded
        if not self._events.wants(kind):
            return
        self._events.emit(
            kind(
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


def _fitting(waiting: Sequence[Ended]) -> int:
    """How many of them go together: those who saved most would take one statement long, and time is limited."""
    count = files = 0
    for ended in waiting[:BATCH]:
        files += len(ended.held.artifacts)
        if count and files > MOST_ARTIFACTS:
            break
        count += 1
    return count


def claimable_again(answer: Settled) -> bool:
    return answer.ok and answer.state in CLAIMABLE


class Settling:
    """The desk's side: one settling statement for the batch; where the batch cannot be sent, one by one."""

    def __init__(self, store: Callable[[], Store], worker: str) -> None:
        self._store = store
        self._worker = worker

    def __call__(self, batch: list[Ended]) -> list[Answered]:
        store = self._store()
        known: dict[int, Answered] = {}
        reports: dict[int, Report] = {}
        for place, ended in enumerate(batch):
            finished = self._look(store, ended) if ended.completed_in else None
            if finished is not None:
                known[place] = finished
            else:
                reports[place] = ended.report(_after_rollback(ended), self._worker)
        known |= dict(zip(reports, self._settle(store, list(reports.values())), strict=True))
        return [known[place] for place in range(len(batch))]

    def _settle(self, store: Store, reports: list[Report]) -> list[Answered]:
        try:
            return [Answered(settled) for settled in store.settle(reports)]
        except StoreUnavailable:
            raise
        except Exception:
            # One report that cannot be stored must not keep its neighbours from being stored.
            return [_settle_one(store, report) for report in reports]

    def _look(self, store: Store, ended: Ended) -> Answered | None:
        try:
            finished = self._completed(store, ended)
        except StoreUnavailable:
            raise
        except Exception as error:  # a row that cannot be read: nobody's neighbours wait for it
            job = ended.held.job
            return Answered(Settled(job.job_id, job.attempt, Status.BUSY), _said(error))
        return None if finished is None else Answered(finished)

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


def _settle_one(store: Store, report: Report) -> Answered:
    """As it is; else with less of it, until the store takes it; else not at all, for now."""
    problem: str | None = None
    for attempt in _ever_less(report):
        try:
            return Answered(store.settle([attempt(problem)])[0], problem)
        except StoreUnavailable:
            raise
        except Exception as error:
            problem = problem or _said(error)
    return Answered(Settled(report.job_id, report.attempt, Status.BUSY), problem)


def _ever_less(report: Report) -> Iterator[Callable[[str | None], Report]]:
    yield lambda _problem: report
    if report.progress is not None:  # it is only for people to look at
        yield lambda _problem: replace(report, progress=None)
    bare = replace(report, progress=None, artifacts=())
    if not isinstance(report.outcome, Succeeded):  # its result may be one of the files that are left out
        yield lambda _problem: bare
    yield lambda problem: replace(bare, outcome=Failed(JobError("unstorable_result", problem or "", retryable=False)))


def _said(error: Exception) -> str:
    """In characters that every database can hold."""
    return (str(error) or type(error).__name__).encode("ascii", "backslashreplace").decode()
