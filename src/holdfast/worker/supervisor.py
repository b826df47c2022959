"""The worker's main loop. It never runs user code and never waits for the store.

Everything the worker does is in one of its parts; the loop wakes when a runner says something, a desk has an answer,
a signal arrives or some part's time has come, and then steps them all. The first thing after every wait is to enforce
what time has decided meanwhile: a supervisor that was stopped past a lease kills before it believes anything.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

from holdfast.domain.answers import Beaten, Settled
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.events import Events, Problem, RunnerStarted
from holdfast.domain.job import Claimed
from holdfast.domain.stuck import Code
from holdfast.domain.timing import Timing
from holdfast.domain.views import WorkerRow
from holdfast.domain.worker_states import WorkerState
from holdfast.periodic.duties import Duties
from holdfast.periodic.part import NEVER, Part
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.runners import prctl
from holdfast.runners.descendants import children, kill_strays
from holdfast.runners.pool import Pool
from holdfast.runners.process import RunnerProcess
from holdfast.tasks.tracing import Traces
from holdfast.worker.asking import Asking
from holdfast.worker.bell import Bell
from holdfast.worker.clock import uptime
from holdfast.worker.cycle import Cycle
from holdfast.worker.draining import Draining
from holdfast.worker.hand import SLOW_SECONDS
from holdfast.worker.heartbeats import Heartbeats
from holdfast.worker.job_logs import JobLogs
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.memory import MemoryWatch
from holdfast.worker.options import WorkerOptions
from holdfast.worker.orphans import Orphans
from holdfast.worker.patience import Patience
from holdfast.worker.pickup import Pickup
from holdfast.worker.reports import Ended, Reports, claimable_again
from holdfast.worker.runs import Runs
from holdfast.worker.serving import Caching, Serving
from holdfast.worker.showing import detail_of
from holdfast.worker.sizing import pool_size
from holdfast.worker.starts import StartWatch
from holdfast.worker.waiting import Ready, Waiting

Given = ParamSpec("Given")

LONGEST_SLEEP_SECONDS = 1.0
GATHER_SECONDS = 0.002
LAST_SECONDS = 2.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    def __init__(
        self,
        options: WorkerOptions,
        control_store: Callable[[], Store],
        claim_store: Callable[[], Store],
        events: Events,
        clock: Callable[[], float] = uptime,
        patience: Patience | None = None,
        serving: Serving | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._options = options
        self._events = events
        self._clock = clock
        self._born = self._stepped_at = clock()
        self._stops = 0
        self._draining_stops = 0
        self._children_changed = False
        self._older_children: list[int] = []
        self.refusal: ConfigurationError | None = None  # what is wrong is known only when the app is, and stays wrong
        self.bell = Bell()
        self.waiting = Waiting(self.bell, clock)
        ring, worker, timing = self.bell.ring, options.worker_id, options.timing
        self.book = LeaseBook(timing, worker)
        self.pool = Pool(pool_size(options, traced=traces is not None), self._runner_started)
        self.logs = JobLogs(control_store, ring, Retrying("logs", events, longest=5.0))
        serving = serving or Serving(control_store, Caching(control_store))
        self.asking = Asking(serving, self.book, worker, events, ring)
        self.runs = Runs(
            self.book,
            self.pool,
            events,
            report=lambda ended: self.reports.add(ended),
            log=self.logs.add,
            term_grace_seconds=options.term_grace_seconds,
            cancel_grace_seconds=options.grace_seconds,
            ask=self.asking.hear,
            traces=traces,
        )
        self.reports = Reports(
            control_store, worker, events, ring, self._settled, Retrying("settle", events, longest=2.0)
        )
        self.heartbeats = Heartbeats(
            control_store,
            self.book,
            events,
            ring,
            self._beaten,
            Retrying("heartbeat", events, longest=min(1.0, timing.heartbeat / 4)),
        )
        self.duties = Duties(
            claim_store,
            worker,
            self.timing,
            events,
            ring,
            lambda: list(self.pool.tasks.values()),
            self._row,
            Retrying("duties", events, longest=5.0),
            lambda: self.pool.schedules,
            timing.lease,
            lambda: self.pool.sources,
        )
        self.pickup = Pickup(
            claim_store,
            worker,
            options.queues,
            options.poll_seconds,
            self.runs.hand.rooms,
            self._taken,
            events,
            ring,
            patience,
        )
        self.cycle = Cycle(claim_store, self.pickup, self.duties, events, ring, lambda: self.pool.ready)
        self.draining = Draining(self.runs, self.pool, options.grace_seconds, options.term_grace_seconds)
        self.memory = MemoryWatch(self.pool, self.book, options.max_memory)
        self.starts = StartWatch(self.pool, self.book, events)
        orphans = Orphans(self.pool)
        self.parts: list[Part] = [
            self.runs, self.heartbeats, self.reports, self.asking, self.logs, self.memory, orphans, self.starts,
        ]  # fmt: skip

    # life

    def run(self) -> int:
        """Until a stop signal, or until everything is done with `--drain`. The answer is the exit code."""
        # A shell that became this worker (`proxy & exec holdfast worker …`) leaves children that are not ours to kill.
        self._older_children = children(os.getpid())
        prctl.set_child_subreaper()
        self._listen_for_signals()
        try:
            self.pool.adjust(self._clock())
            while self.cycle.state is not WorkerState.STOPPED:
                self.step()
                self._refuse_to_start()
            return 3 if self.draining.gave_up else 0
        finally:
            self._end_runners()
            self.duties.say_goodbye(1.0)
            self._close()
            self.pool.clean_up()

    def step(self) -> None:
        ready = self._wait()
        if ready and self.runs.hand.nobody_waits:
            time.sleep(GATHER_SECONDS)  # what is said meanwhile is heard together: to wake for each word costs more
            ready = self.waiting.wait(0)
        now = self._stepped_at = self._clock()
        self._guarded(self.runs.enforce, now)
        if now >= self.book.next_check:
            ready = self.waiting.wait(0)  # what was said before this moment counts before any time limit
        self.bell.hush()
        for key, events in ready:
            if isinstance(key.fileobj, RunnerProcess):
                self._hear(key.fileobj, events, now)
        self._guarded(self._see_children, now)
        self._heed_signals(now)
        # A job may be waiting for us, or a runner for a job: what else there is to do is done while the store answers,
        # or the runner works.
        is_urgent = self._is_urgent()
        if is_urgent:
            self._guarded(self.cycle.step, now)
            if self.pickup.busy:
                time.sleep(0)  # the thread that asks goes first
        for part in self._active_parts():
            self._guarded(part.step, now)
        self._guarded(self._move_on, now, is_urgent)
        self._guarded(self.cycle.tell)
        self.waiting.watch_unsent(self.pool)

    def _wait(self) -> Ready:
        """Until something happens, or the time of some part has come. To look at a file, nothing else is stepped."""
        if self.cycle.state is not WorkerState.IDLE:
            return self.waiting.wait(self._sleep_seconds())
        ready, has_changed = self.waiting.wait_or_change(self._sleep_seconds())
        if has_changed:
            self.cycle.ring()
        return ready

    def _is_urgent(self) -> bool:
        if self.draining.begun:
            return False
        return self.cycle.state is WorkerState.IDLE or (self.pickup.has_answer and self.runs.hand.somebody_is_idle)

    def _active_parts(self) -> list[Part]:
        connected = self.cycle.connected or self.draining.begun
        return [*self.parts, self.duties] if connected else self.parts

    def _move_on(self, now: float, has_stepped: bool) -> None:
        if self.draining.begun:
            self._drain(now)
            return
        self.pool.adjust(now)
        if not has_stepped:
            self.cycle.step(now)
        self._finish_when_empty(now)

    def _guarded(self, act: Callable[Given, None], *arguments: Given.args, **named: Given.kwargs) -> None:
        """One part that fails must not keep the others from their work, the heartbeats least of all."""
        try:
            act(*arguments, **named)
        except Exception as error:
            self._events.emit(Problem("the supervisor", str(error) or repr(error), traceback.format_exc()))
            self.cycle.fail(error, self._clock())
            time.sleep(0.01)  # should it fail at every step

    def _sleep_seconds(self) -> float:
        at = min(part.wake_at() for part in self._active_parts())
        at = min(at, self.cycle.wake_at(), self.draining.wake_at(), self.pool.wake_at(self._clock()))
        longest = SLOW_SECONDS if self.runs.hand.should_look_soon() else LONGEST_SLEEP_SECONDS
        return max(0.0, min(at - self._clock(), longest))

    # runners

    def _runner_started(self, runner: RunnerProcess) -> None:
        self.waiting.add(runner)
        self._events.emit(RunnerStarted(runner.pid, runner.kind, runner.spec.slots))

    def _hear(self, runner: RunnerProcess, events: int, now: float) -> None:
        if events & selectors.EVENT_WRITE:
            runner.flush()
        for frame in runner.read():
            self._guarded(self.runs.hear, runner, frame, now)
        if runner.line_closed:
            # It has ended, or is out of our reach, which must come to the same.
            self.waiting.forget(runner)
            runner.finish_off()

    def _see_children(self, now: float) -> None:
        if not self._children_changed:
            return
        self._children_changed = False
        for runner in self.pool:
            exit_ = runner.exited()
            if exit_ is None:
                continue
            if not runner.line_closed:
                self.waiting.forget(runner)
            self.runs.runner_ended(runner, exit_, now)
            runner.close()
        self._clear_strays()

    def _clear_strays(self) -> None:
        """What a dead runner had started falls to us, and goes the same way."""
        known = [*self._older_children, *(runner.pid for runner in self.pool)]
        for pid in kill_strays(os.getpid(), known):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue

    def _refuse_to_start(self) -> None:
        """An app that cannot be imported is a mistake to be told at once; in a reload it is waited out."""
        broken = self.runs.broken
        starting = self.cycle.state is WorkerState.STARTING and not self._options.reload
        if starting and broken is not None:
            raise ConfigurationError(f"{broken['error']}\n{broken['stack'] or ''}".rstrip())
        if starting and self.pool.known and not self.pool.tasks:
            raise ConfigurationError(f"{self._options.app} has no tasks: decorate a function with @app.task")
        if self.refusal is not None:
            raise self.refusal
        if self._options.fail_fast and self.cycle.error is not None and self.pickup.answered_at == 0.0:
            raise self.cycle.error

    # signals

    def _listen_for_signals(self) -> None:
        self.bell.rung_by_signals()
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop_signal)
        signal.signal(signal.SIGCHLD, self._child_signal)

    def _stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stops += 1

    def _child_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._children_changed = True

    def _heed_signals(self, now: float) -> None:
        if self._stops > 0 and not self.draining.begun:
            self._begin_draining(now)
            self._draining_stops = 1
        if self._stops > self._draining_stops and self.draining.begun:
            self._draining_stops = self._stops
            self.draining.hurry(now)

    def timing(self) -> Timing:
        """As the shortest lease among the tasks wants it."""
        leases = [task.defaults.get("lease_seconds") or NEVER for task in self.pool.tasks.values()]
        return self._options.timing.tightened(min(leases, default=NEVER))

    def seconds_since_answer(self) -> float:
        """Since the store last answered a claim, also with nothing; since the start before that."""
        return self._clock() - (self.pickup.answered_at or self._born)

    def seconds_since_step(self) -> float:
        return self._clock() - self._stepped_at

    # the store's answers

    def _taken(self, jobs: list[Claimed], sent_at: float) -> None:
        self.runs.take(jobs, sent_at)
        self.runs.enforce(self._stepped_at)  # what took longer than its leases brings nothing that may be started
        self.runs.hand.deal()  # before more is asked for

    def _settled(self, ended: Ended, answer: Settled) -> None:
        self.runs.settled(ended, answer)
        self.pickup.nothing_due = False  # what was settled may be due again
        if claimable_again(answer) or self._options.drain:
            self.cycle.ring()

    def _beaten(self, held: Held, answer: Beaten) -> None:
        self.runs.heard_beat(held, answer, self._clock())

    # the end

    def _begin_draining(self, now: float) -> None:
        self.cycle.drain()
        self.pickup.stop_waiting()
        self.draining.begin(now)
        self.duties.show_soon()

    def _drain(self, now: float) -> None:
        self.pickup_leftovers(now)
        self.logs.flush()
        undelivered = len(self.reports) + len(self.logs) + self.pickup.busy
        if self.draining.step(now, undelivered):
            self.cycle.stop()

    def pickup_leftovers(self, now: float) -> None:
        """A claim that was under way when we were told to stop: what it brings is given back."""
        try:
            self.pickup.collect(now)
        except HoldfastError:
            return

    def _finish_when_empty(self, now: float) -> None:
        if self._options.drain and self.pickup.nothing_due and not self.book and not len(self.reports):
            self._begin_draining(now)
            self._draining_stops = self._stops

    def _end_runners(self) -> None:
        """By themselves if they can, so that what user code registered for the end of its process is run."""
        deadline = time.monotonic() + LAST_SECONDS
        for runner in self.pool:
            runner.stop()
        for runner in self.pool:
            runner.wait(max(0.0, deadline - time.monotonic()))
            runner.kill("worker stops")
            runner.wait(LAST_SECONDS)  # what hangs in the kernel dies when it comes out of it; we need not be there
        self._clear_strays()

    def _close(self) -> None:
        desks = (self.heartbeats, self.reports, self.asking, self.duties, self.logs, self.pickup, self.cycle)
        for desk in desks:
            desk.close()
        self.waiting.close()
        self.bell.close()

    def _row(self) -> WorkerRow:
        return WorkerRow(
            id=self._options.worker_id,
            host=os.uname().nodename,
            pid=os.getpid(),
            state=str(self.cycle.state),
            app=self._options.app,
            queues=self._options.queues,
            processes=len(self.pool),
            slots=self.pool.slots,
            running=self.runs.started,
            detail=detail_of(self.pool, self.book, self._clock()) | self._unstarted(),
        )

    def _unstarted(self) -> dict[str, dict[str, int]]:
        """Where `holdfast stuck` finds them: a job that has not started looks like any other running one."""
        overdue = self.starts.overdue()
        return {Code.NOT_STARTED: overdue} if overdue else {}
