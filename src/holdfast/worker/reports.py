"""Outcomes on their way to the store: everything that ended while the last batch was under way is the next batch.

A report is kept until the store has answered it. Asking twice is safe: the same report under the same token gets the
same answer again.

content refused   our own validation, or the database, says that the content is bad: less of the report is sent, and in
                  the end `unstorable_result` in its place
store away        the whole batch is sent again, after a wait
any other error   the cause is unknown, so the report is never replaced. Reports are sent one by one; each that fails
                  waits alone, and its neighbours do not wait with it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.domain.answers import Settled, Status
from holdfast.domain.artifacts import MOST_ARTIFACTS
from holdfast.domain.errors import NotFound, is_away, proves_bad_content
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
# The wait of a report that was not taken, each time twice as long. A worker that drains gives up only after 10 s.
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.2, 2.0
# After this many consecutive failures, the rest of the round is not sent.
MAX_FAILED_IN_A_ROW = 3
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
    """`problem`: why the report could not be stored as it was; with BUSY, why it waits."""

    settled: Settled
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One answer for each report of a batch. `error`: the last one that says nothing about the reports."""

    answers: list[Answered]
    error: Exception | None = None


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
        self._desk: Desk[list[Ended], Round] = Desk("reports", self._settling, ring)
        self._events = events
        self._settled = settled
        self._retrying = retrying
        self._waiting: list[Ended] = []
        self._asked: list[Ended] = []
        self._stuck: dict[int, Stuck] = {}  # by the identity of what ended; also while it is asked for again
        self._asked_stuck = False  # the last batch was of these

    def __len__(self) -> int:
        asked = 0 if self._asked_stuck else len(self._asked)
        return len(self._waiting) + asked + len(self._stuck)

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
            self._take(answer, now)
        if self._desk.busy or now < self._retrying.not_before:
            return
        # In turns, and never together: what failed before would fail the batch of what did not.
        stuck = [stuck.ended for stuck in self._stuck.values() if now >= stuck.again_at]
        fresh = [ended for ended in self._waiting if not ended.held.beating]
        ready = [ended for ended in stuck if not ended.held.beating]
        self._asked_stuck = bool(ready) and not (fresh and self._asked_stuck)
        if batch := ready if self._asked_stuck else fresh:
            self._ask(batch[: _fitting(batch)])

    def _ask(self, asked: list[Ended]) -> None:
        self._asked = asked
        if not self._asked_stuck:
            taken = set(map(id, asked))
            self._waiting = [ended for ended in self._waiting if id(ended) not in taken]
        for ended in asked:
            ended.held.reporting = True
        self._desk.ask(asked)

    def wake_at(self) -> float:
        if self._desk.busy:
            return NEVER
        # Those whose heartbeat is on its way are woken by its answer.
        if any(not ended.held.beating for ended in self._waiting):
            return self._retrying.not_before
        waits = (stuck.again_at for stuck in self._stuck.values() if not stuck.ended.held.beating)
        return max(min(waits, default=NEVER), self._retrying.not_before)

    def close(self) -> None:
        self._desk.close()

    def _put_back(self, asked: list[Ended]) -> None:
        if not self._asked_stuck:
            self._waiting = asked + self._waiting
        self._asked = []

    def _take(self, round_: Round, now: float) -> None:
        asked, self._asked = self._asked, []
        busy: list[Ended] = []
        for ended, answered in zip(asked, round_.answers, strict=True):
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
                wait = FIRST_WAIT_SECONDS if before is None else min(2 * before.wait, MAX_WAIT_SECONDS)
                self._stuck[id(ended)] = Stuck(ended, now + wait, wait)
        self._put_back(busy)
        if round_.error is not None and all(one.settled.status is Status.BUSY for one in round_.answers):
            self._retrying.failed(now, round_.error)
            return
        self._retrying.worked(now)
        if busy:
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
    """The desk's side: one settling statement for the batch; where that fails, one by one."""

    def __init__(self, store: Callable[[], Store], worker: str) -> None:
        self._store = store
        self._worker = worker

    def __call__(self, batch: list[Ended]) -> Round:
        store = self._store()
        known: dict[int, Answered] = {}
        reports: dict[int, Report] = {}
        for place, ended in enumerate(batch):
            finished = self._look(store, ended) if ended.completed_in else None
            if finished is not None:
                known[place] = finished
            else:
                reports[place] = ended.report(_after_rollback(ended), self._worker)
        settled = self._settle(store, list(reports.values()))
        known |= dict(zip(reports, settled.answers, strict=True))
        return Round([known[place] for place in range(len(batch))], settled.error)

    def _settle(self, store: Store, reports: list[Report]) -> Round:
        try:
            return Round([Answered(settled) for settled in store.settle(reports)])
        except Exception as error:
            if is_away(error):
                raise
            if len(reports) == 1 and not proves_bad_content(error):
                return Round([_waits(reports[0], error)], error)
            # One report that cannot be stored must not keep its neighbours from being stored.
            return _one_by_one(store, reports)

    def _look(self, store: Store, ended: Ended) -> Answered | None:
        try:
            finished = self._completed(store, ended)
        except Exception as error:
            if is_away(error):
                raise
            job = ended.held.job  # a row that cannot be read: its neighbours do not wait for it
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


def _waits(report: Report, error: Exception | None) -> Answered:
    return Answered(Settled(report.job_id, report.attempt, Status.BUSY), None if error is None else _said(error))


def _one_by_one(store: Store, reports: list[Report]) -> Round:
    """Stop where the store is away, or where MAX_FAILED_IN_A_ROW consecutive reports have failed."""
    answers: list[Answered] = []
    last: Exception | None = None
    in_a_row = 0
    for report in reports:
        if in_a_row == MAX_FAILED_IN_A_ROW:
            answers.append(_waits(report, None))
            continue
        try:
            answers.append(_settle_one(store, report))
            in_a_row = 0
        except Exception as error:
            last = error
            in_a_row = MAX_FAILED_IN_A_ROW if is_away(error) else in_a_row + 1
            answers.append(_waits(report, None if is_away(error) else error))
    return Round(answers, last)


def _settle_one(store: Store, report: Report) -> Answered:
    """As it is; where its content is proven to be bad, with less of it, until the store takes it."""
    problem: str | None = None
    for attempt in _ever_less(report):
        try:
            return Answered(store.settle([attempt(problem)])[0], problem)
        except Exception as error:
            if not proves_bad_content(error):
                raise
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
