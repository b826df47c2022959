"""The jobs of this worker and the runners they run in: handed over, listened to, limited, ended.

Three places where a job can be: in the `hand` (claimed, not given to a runner), queued in a runner, or started. Only a
started job is ever charged with the death of its runner. If one runner serves several jobs at once and dies by itself,
nobody knows which of them did it, and all that had started are charged; if *we* kill it because of one of them, the
others are innocent and are released.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from holdfast.domain.answers import Beaten, Settled, Status
from holdfast.domain.artifacts import Artifact
from holdfast.domain.events import Events, LeaseGone, Problem, RunMoved, RunnerEnded
from holdfast.domain.job import Claimed
from holdfast.domain.logs import LogLine
from holdfast.domain.looks import readable_looks
from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Released, Succeeded, Usage
from holdfast.domain.schedule import Declaration
from holdfast.domain.sources import SourceDeclaration
from holdfast.domain.wire import outcome_from_json
from holdfast.domain.worker_states import RunState, check_run_move
from holdfast.periodic.part import NEVER
from holdfast.runners.frames import COMPLETED_IN, NOTHING, Frame
from holdfast.runners.pool import Pool
from holdfast.runners.process import Exit, RunnerProcess
from holdfast.tasks.context import JobInfo
from holdfast.tasks.tracing import Traces
from holdfast.worker.hand import Hand
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.pace import Pace
from holdfast.worker.reports import Ended

_SUCCEEDED = Succeeded()


def _nobody(_runner: RunnerProcess, _frame: Frame) -> None:
    """Answers what jobs ask for."""


class Runs:
    def __init__(
        self,
        book: LeaseBook,
        pool: Pool,
        events: Events,
        report: Callable[[Ended], None],
        log: Callable[[list[LogLine]], None],
        term_grace_seconds: float,
        cancel_grace_seconds: float,
        ask: Callable[[RunnerProcess, Frame], None] = _nobody,
        traces: Traces | None = None,
    ) -> None:
        self.book = book
        self.pool = pool
        self.pace = Pace()
        self.draining = False
        self.broken: Frame | None = None
        self.database_url: str | None = None  # as the app itself names it
        self.artifacts_url: str | None = None
        self._events = events
        self._report = report
        self._log = log
        self._ask = ask
        self.traces = traces
        self._term_grace = term_grace_seconds
        self._cancel_grace = cancel_grace_seconds
        self.hand = Hand(pool, self.pace, lambda: len(book))

    # room and work

    @property
    def started(self) -> int:
        return sum(1 for held in self.book if held.started_at is not None and not held.reported)

    def take(self, jobs: list[Claimed], sent_at: float) -> None:
        for job in jobs:
            if (older := self.book.newest(job.attempt_id)) is not None:
                self._supersede(older)
            info = self.pool.tasks.get(job.task) or TaskInfo(job.task)
            held = self.book.add(job, info, sent_at)
            if self.traces is not None:
                _begin_trace(self.traces, held)
            self._moved(held, None)
            self.hand.add(held)
        if self.draining:
            self._empty_hand("the worker is stopping")

    def _supersede(self, held: Held) -> None:
        """The store has given out the same attempt again: it has lost the commit of our first claim (a promotion of an
        asynchronous standby). Two executions of one attempt share files and log lines, so the older one is killed
        whatever the task says about lost leases. A report that is on its way is refused for its old token."""
        if not held.reported:
            self._lose(held, None, refused=True)

    # what runners say

    def hear(self, runner: RunnerProcess, frame: Frame, now: float) -> None:
        match frame["t"]:
            case "started" | "done" as kind:
                held = self.book.get(frame["id"])
                if held is None:
                    return
                if kind == "started":
                    self._heard_started(runner, held, now)
                else:
                    self._heard_done(runner, held, frame)
            case "ready":
                schedules = [Declaration.from_json(name, value) for name, value in frame["schedules"].items()]
                sources = [SourceDeclaration(name, limits) for name, limits in frame["sources"].items()]
                self.pool.learn(runner, [TaskInfo.from_json(task) for task in frame["tasks"]], schedules, sources)
                self.database_url, self.artifacts_url = frame["database"], frame["artifacts"]
            case "broken":
                self.broken = frame
                self._events.emit(Problem("importing the app", frame["error"], frame["stack"]))
            case "returned":
                self._returned(runner, frame["ids"])
            case "pong":
                runner.is_pinged = False
            case "ask":
                self._ask(runner, frame)
            case kind:
                held = self.book.get(frame["id"])
                if held is not None:
                    self._hear_about(held, kind, frame)

    def _hear_about(self, held: Held, kind: str, frame: Frame) -> None:
        match kind:
            case "progress":
                self.book.said_progress(held, frame["value"])
            case "log":
                self._log([LogLine.from_json(line) for line in frame["lines"]])
            case "completing":
                held.completing = True
            case "looked":
                held.cache = readable_looks(frame["looks"])
            case "saving":
                held.artifacts.pop(frame["name"], None)
            case "saved":
                artifact = Artifact.from_json(held.job.job_id, held.job.attempt, frame["artifact"])
                held.artifacts[artifact.name] = artifact
            case other:
                raise ValueError(f"a runner said {other!r}")

    def _heard_started(self, runner: RunnerProcess, held: Held, now: float) -> None:
        runner.jobs[held.id] = True
        held.started_at = now
        if held.trace is not None:
            held.trace.started()
        self._to(held, RunState.PROCESSING)
        if held.job.timeout_seconds is not None:
            held.limit_at = now + held.job.timeout_seconds
            self.book.changed(held)

    def _heard_done(self, runner: RunnerProcess, held: Held, frame: Frame) -> None:
        runner.jobs.pop(held.id, None)
        runner.finished += 1
        self.hand.moves_again(runner)
        figures = frame["usage"]
        took = figures.get("duration_ms", 0.0)
        self.pace.note(held.job.task, took)
        usage = Usage(round(took), figures.get("cpu_ms"), figures.get("max_rss_kb"))
        told = frame["outcome"]
        if told is NOTHING:  # as nearly always
            self._end(held, _SUCCEEDED, usage)
        else:
            self._heard_outcome(held, frame, usage)
        if not runner.stopping and self.pool.worn_out(runner):
            runner.stop()

    def _heard_outcome(self, held: Held, frame: Frame, usage: Usage) -> None:
        told = frame["outcome"]
        completed_in = told == COMPLETED_IN
        outcome = outcome_from_json(frame["otherwise"] if completed_in else told)
        stopped_as_asked = isinstance(outcome, Cancelled) and isinstance(held.ending, Cancelled)
        if held.ending is not None and not isinstance(outcome, Succeeded) and not stopped_as_asked:
            outcome = held.ending
        self._end(held, outcome, usage, completed_in=completed_in)

    def _returned(self, runner: RunnerProcess, ids: list[str]) -> None:
        for lease_id in reversed(ids):
            held = self.book.get(lease_id)
            if held is not None and runner.jobs.pop(lease_id, None) is False:
                self._back_to_hand(held)
        if self.draining:
            self._empty_hand("the worker is stopping")

    def _back_to_hand(self, held: Held) -> None:
        held.runner = None
        if held.lost:
            self._drop(held)
        elif held.ending is not None:
            self._end(held, held.ending)
        else:
            self.hand.put_back(held)

    # how runners end

    def runner_ended(self, runner: RunnerProcess, exit: Exit, now: float) -> None:
        for frame in runner.read_all():
            self._hear_last(runner, frame, now)
        self.hand.moves_again(runner)
        self.pool.remove(runner, now)
        for lease_id, started in reversed(runner.jobs.items()):
            held = self.book.get(lease_id)
            if held is None:
                continue
            if started:
                self._lost_runner(held, runner, exit)
            else:
                self._back_to_hand(held)
        if self.draining:
            self._empty_hand("the worker is stopping")
        asked = runner.terminated or (runner.stopping and exit.code == 0)
        why = runner.killed or ("stopped" if asked else None)
        self._events.emit(RunnerEnded(runner.pid, runner.kind, exit.code, exit.signal, why, runner.finished))

    def _hear_last(self, runner: RunnerProcess, frame: Frame, now: float) -> None:
        """Whatever it said: its jobs must be reported."""
        try:
            self.hear(runner, frame, now)
        except Exception as error:
            held = self.book.get(str(frame.get("id")))
            whose = (None, None) if held is None else (held.job.job_id, held.job.attempt)
            self._events.emit(Problem("a runner's last words", str(error) or repr(error), None, *whose))

    def _lost_runner(self, held: Held, runner: RunnerProcess, exit: Exit) -> None:
        if held.lost:
            self._drop(held)
        elif held.ending is not None:
            self._end(held, held.ending)
        elif runner.killed is not None:
            self._end(held, Released(f"its runner was killed for another job: {runner.killed}"))
        elif runner.terminated and exit.signal == signal.SIGTERM:
            self._end(held, Released("its runner was stopped for another job"))
        else:
            self.pace.forget(held.job.task)
            self._end(held, Crashed(f"the process that ran it {exit}", exit.code, exit.signal))

    # limits

    def enforce(self, now: float) -> None:
        """The first thing after every wait: nothing may run on under a lease that has run out while we slept."""
        for held in self.book.due_checks(now):
            self._check_lease(held, now)

    def _enforce_limits(self, now: float) -> None:
        """Time limits come after listening: a job that ended in time must not have its successor stopped."""
        if now >= self.book.next_check:
            for held in self.book.due_checks(now):
                self._check_limits(held, now)
            self.book.plan_checks()

    def _check_lease(self, held: Held, now: float) -> None:
        if held.watched and now >= held.lease_kill_at:
            self._lose(held, Released("the lease could not be confirmed in time"), refused=False)
        elif held.watched and now >= held.lease_warning_at and not held.lease_warned:
            held.lease_warned = True
            if held.runner is not None and (held.runner.shared or held.started_at is None):
                held.runner.cancel(held.id, "lease_lost")

    def _check_limits(self, held: Held, now: float) -> None:
        if held.reported or held.lease_over:
            held.limit_at = held.kill_at = NEVER
            return
        if now >= held.limit_at:
            held.limit_at = NEVER
            limit = held.job.timeout_seconds
            self._ask_to_stop(
                held, Failed(JobError("timeout", f"ran longer than its time limit of {limit:g} s")), "timeout", now
            )
        if now >= held.kill_at:
            held.kill_at = NEVER
            self._kill(held, "did not stop")

    def _ask_to_stop(self, held: Held, ending: Outcome, reason: str, now: float) -> None:
        """Politely first: a message, and TERM to a runner that this job has to itself. KILL follows after the grace."""
        held.ending = ending
        held.kill_at = min(held.kill_at, now + self._term_grace)
        if held.runner is not None:
            held.runner.cancel(held.id, reason)
            if held.info.kind is Kind.SYNC and not held.runner.shared:
                held.runner.terminate()

    def _kill(self, held: Held, why: str) -> None:
        if held.runner is not None:
            held.runner.kill(why)

    def _lose(self, held: Held, ending: Outcome | None, *, refused: bool) -> None:
        held.ending, held.lost, held.lease_over = ending, refused, True
        started = held.started_at is not None
        job = held.job
        if held.trace is not None:
            held.trace.lost("the store says so" if refused else "it could not be confirmed in time")
        self._events.emit(LeaseGone(job.job_id, job.attempt, job.task, refused, started))
        if held.runner is not None:
            held.runner.kill("lease lost")
        elif self.hand.remove(held):
            if ending is not None:
                self._end(held, ending)
            else:
                self._drop(held)

    # what the store says

    def heard_beat(self, held: Held, answer: Beaten, now: float) -> None:
        if held.reported:
            return
        if answer.status is Status.REFUSED:
            if held.info.on_lost_lease is OnLostLease.KILL or held.started_at is None:
                self._lose(held, None, refused=True)
            elif not held.lost:
                job = held.job
                held.lost = True
                if held.runner is not None:
                    held.runner.tell_lease_lost(held.id)
                self._events.emit(LeaseGone(job.job_id, job.attempt, job.task, True, False))
        elif answer.cancel and not held.cancel_seen:
            held.cancel_seen = True
            self._cancel(held, now)

    def _cancel(self, held: Held, now: float) -> None:
        if held.runner is None and self.hand.remove(held):
            self._end(held, Cancelled("cancel requested"))
            return
        held.ending = Cancelled("cancel requested, and it did not stop by itself")
        held.kill_at = min(held.kill_at, now + self._cancel_grace)
        self.book.changed(held)
        if held.runner is not None:
            held.runner.cancel(held.id, "cancel_requested")

    def settled(self, ended: Ended, answer: Settled) -> None:
        if ended.held.trace is not None:
            ended.held.trace.ended(ended.outcome, answer)
        self._drop(ended.held)

    # draining and watching

    def give_back_queued(self) -> None:
        self._empty_hand("the worker is stopping")
        for runner in self.pool:
            runner.give_back(draining=True)

    def release_started(self, reason: str) -> None:
        """What is killed from now on is released."""
        for held in self.book:
            if held.ending is None and not held.reported:
                held.ending = Released(reason)

    def _empty_hand(self, reason: str) -> None:
        for held in self.hand.empty():
            self._end(held, Released(reason))

    def step(self, now: float) -> None:
        self._enforce_limits(now)
        self.hand.take_back(self._started_at, now)
        self.hand.deal()
        for held in self.hand.take_late(now):
            self._end(held, Released("claimed ahead, and this worker is busy with others"))

    def _started_at(self, lease_id: str) -> float | None:
        held = self.book.get(lease_id)
        return None if held is None else held.started_at

    def wake_at(self) -> float:
        return self.book.next_check

    # ending one

    def _end(self, held: Held, outcome: Outcome, usage: Usage | None = None, *, completed_in: bool = False) -> None:
        if held.reported:
            return
        held.reported = True
        held.runner = None
        if held.state is RunState.PROCESSING:
            succeeded = isinstance(outcome, Succeeded)
            self._to(held, RunState.REPORTING_SUCCESS if succeeded else RunState.REPORTING_FAILURE)
        self._report(Ended(held, outcome, usage or Usage(), completed_in))

    def _drop(self, held: Held) -> None:
        if held.trace is not None:
            held.trace.dropped()
        self.book.drop(held)
        before, held.state = held.state, None
        self._moved(held, before)

    def _to(self, held: Held, target: RunState) -> None:
        before = held.state
        check_run_move(before, target)
        held.state = target
        self._moved(held, before)

    def _moved(self, held: Held, before: RunState | None) -> None:
        if self._events.wants(RunMoved):
            job = held.job
            self._events.emit(RunMoved(job.job_id, job.attempt, job.task, job.queue, before, held.state))


def _begin_trace(traces: Traces, held: Held) -> None:
    """From here on the job carries the context of its attempt: to its code, and to the jobs that this enqueues."""
    job = held.job
    held.trace = traces.attempt(JobInfo.from_claimed(job), held.worker, job.due_seconds)
    held.job = replace(job, traceparent=held.trace.traceparent or job.traceparent)
