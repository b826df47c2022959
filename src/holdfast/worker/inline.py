"""A worker in the caller's own process, for notebooks and tests: `app.work()`.

It claims, runs and settles one job after another with real leases. A thread renews the lease of the job that runs, so
a long one keeps it as long as the process gets to run Python at all; hard time limits and protection from crashes need
`holdfast worker`.

No error ends the heartbeats. A second thread counts the lease on the local clock, from when its last successful
heartbeat was sent, because a heartbeat may block. Shortly before the end it requests the job to stop
(`ctx.cancelled`, reason `lease_lost`): a function in this process cannot be killed. Heartbeats continue: while the
store accepts them, no other worker runs the job.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.asks import Verb
from holdfast.domain.errors import NotAllowed
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.outcome import Outcome, Released, Report, Succeeded, Usage
from holdfast.domain.timing import kill_margin
from holdfast.ports import Store
from holdfast.runners.child.capture import captured
from holdfast.runners.child.execution import flush_standard_streams
from holdfast.runners.command import CommandRun
from holdfast.tasks import tracing
from holdfast.tasks.context import LEASE_LOST, Context, JobInfo
from holdfast.tasks.execute import call, outcome_of, outcome_of_error
from holdfast.tasks.placing import placed
from holdfast.tasks.saving import Saves
from holdfast.tasks.task import AnyTask, CommandTask
from holdfast.tasks.tracing import AttemptTrace
from holdfast.webhooks.task import deliveries
from holdfast.wiring.cache import open_cache
from holdfast.wiring.sql import complete_in
from holdfast.worker.identity import worker_id
from holdfast.worker.options import TERM_GRACE_SECONDS
from holdfast.worker.serving import Caching, Serving

if TYPE_CHECKING:
    from holdfast.tasks.app import App

POLL_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 60.0  # for a source to let in what is due
SHORTEST_WAIT_SECONDS = 0.01
LOOK_SECONDS = 0.5  # how often what a running job said is taken to the store
LINES_AT_ONCE = 1_000
Result = TypeVar("Result")
_logger = logging.getLogger("holdfast")


def work(app: App, *, until_empty: bool = True, queues: Sequence[str] | None = None, limit: int | None = None) -> int:
    """Run what is due; how many attempts that were."""
    store: Store = app.store
    worker = worker_id("inline")
    store.reap(worker)
    if declared := app.declared_sources():
        try:
            store.announce_sources(declared)
        except NotAllowed as error:  # limits are others' to set; the jobs are still ours
            _logger.warning("%s", error)
    tasks = {**app.tasks, **deliveries(app.tasks)}
    settings = app.settings
    cache = open_cache(settings.cache_url, lambda: store)
    serving = Serving(lambda: store, Caching(cache.store, settings.cache_enabled, settings.cache_ttl_seconds))
    done = 0
    try:
        while limit is None or done < limit:
            sent_at = time.monotonic()
            jobs = store.claim(worker, 1, queues, list(tasks))
            if jobs:
                _run(app, store, serving, worker, jobs[0], tasks[jobs[0].task], sent_at)
                done += 1
            elif not until_empty:
                time.sleep(POLL_SECONDS)
            elif jobs.again_in is not None and jobs.again_in <= LONGEST_WAIT_SECONDS:
                time.sleep(min(max(jobs.again_in, SHORTEST_WAIT_SECONDS), POLL_SECONDS))
            else:
                break
    finally:
        cache.close()
    return done


class _Channel:
    """Progress and log lines wait here until the thread beside the job takes them to the store."""

    def __init__(self) -> None:
        self.value: dict[str, Any] | None = None
        self._lines: list[LogLine] = []

    def progress(self, value: dict[str, Any]) -> None:
        self.value = value

    def log(self, line: LogLine) -> None:
        self._lines.append(line)

    def completing(self) -> None:
        pass

    def take_progress(self) -> dict[str, Any] | None:
        value, self.value = self.value, None
        return value

    def store_lines(self, store: Store) -> None:
        """One caller at a time; a job may go on talking meanwhile."""
        while lines := self._lines[:LINES_AT_ONCE]:
            store.append_logs(lines)
            del self._lines[: len(lines)]


class _Asking:
    """What the job asks for is done at once, by the thread that asks; for a coroutine by a thread of its own, one thing
    after another. A store that is away is told to the job: there is no supervisor here that could wait for it."""

    def __init__(self, serving: Serving, lease: Beat) -> None:
        self._serving = serving
        self._lease = lease
        self._thread: ThreadPoolExecutor | None = None

    def ask(self, verb: Verb, body: dict[str, Any], _timeout: float | None = None) -> Any:
        return self._serving.serve(self._lease, verb, body)

    async def aask(self, verb: Verb, body: dict[str, Any], _timeout: float | None = None) -> Any:
        return await asyncio.wrap_future(self._begin(verb, body))

    def tell(self, verb: Verb, body: dict[str, Any]) -> None:
        self._begin(verb, body)

    def _begin(self, verb: Verb, body: dict[str, Any]) -> Future[Any]:
        self._thread = self._thread or ThreadPoolExecutor(1, "holdfast-asks")
        return self._thread.submit(self._serving.serve, self._lease, verb, body)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()


def _run(app: App, store: Store, serving: Serving, worker: str, job: Claimed, task: AnyTask, sent_at: float) -> None:
    channel = _Channel()
    saves = Saves(job.job_id, job.attempt, lambda: app.artifact_store)
    asking = _Asking(serving, Beat(job.job_id, job.attempt, job.lease_token, worker))
    info, trace = _traced(JobInfo.from_claimed(job), worker, job.due_seconds)
    context = Context(info, channel, job.lease_token, complete=complete_in, saves=saves, asking=asking)
    context.trace = trace
    heartbeats = _Heartbeats(store, worker, job, context, channel, sent_at)
    heartbeats.start()
    started = time.monotonic()
    outcome: Outcome = Released("interrupted")
    process = os.getpid()
    try:
        outcome = _outcome(task, context, channel)
        _leave_if_forked(process)
        outcome = placed(outcome, saves)
    finally:
        _leave_if_forked(process)
        asking.close()
        heartbeats.stop()
        if not context.completed_in or not _finished(store, job):
            usage = Usage(duration_ms=int((time.monotonic() - started) * 1000))
            progress = channel.take_progress()
            saves.close()
            saved = saves.artifacts
            looks = context.cache_looks.told()
            report = Report(
                job.job_id, job.attempt, job.lease_token, outcome, worker, usage, progress, saved, cache=looks
            )
            _settle(store, report, trace)
        elif trace is not None:
            trace.ended(Succeeded())
        channel.store_lines(store)


def _leave_if_forked(process: int) -> None:
    """End a process that the task forked and that comes back here: the job and its lease are the parent's."""
    if os.getpid() != process:
        flush_standard_streams()
        os._exit(0)


def _settle(store: Store, report: Report, trace: AttemptTrace | None) -> None:
    try:
        [settled] = store.settle([report])
        if trace is not None:
            trace.ended(report.outcome, settled)
    finally:
        if trace is not None:
            trace.dropped()


def _traced(info: JobInfo, worker: str, due_seconds: float | None) -> tuple[JobInfo, AttemptTrace | None]:
    traces = tracing.active()
    if traces is None:
        return info, None
    trace = traces.attempt(info, worker, due_seconds)
    return replace(info, traceparent=trace.traceparent or info.traceparent), trace


def _outcome(task: AnyTask, context: Context, channel: _Channel) -> Outcome:
    if isinstance(task, CommandTask):
        run = CommandRun(
            task.command,
            context.job,
            channel,
            lambda: context.cancel_reason,
            term_grace_seconds=TERM_GRACE_SECONDS,
            exclusive=False,
        )
        try:
            return run.run().outcome
        except Exception as error:
            return outcome_of_error(task, error)
    try:
        with captured(context):
            value = call(task, context)
        return outcome_of(task, value)
    except Exception as error:
        return outcome_of_error(task, error, context)


def _finished(store: Store, job: Claimed) -> bool:
    found = store.job(job.job_id)
    return found.state is not State.RUNNING or found.attempt != job.attempt


class _Heartbeats:
    """Renews the lease of one job, and watches its end on the local clock."""

    def __init__(
        self, store: Store, worker: str, job: Claimed, context: Context, channel: _Channel, sent_at: float
    ) -> None:
        self._store = store
        self._worker = worker
        self._job = job
        self._context = context
        self._channel = channel
        self._every = job.lease_seconds / 3
        self._stop_at = self._end_of(sent_at)
        self._over = threading.Event()
        self._failures = 0
        self._reported = ""
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._beat, self._watch)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _end_of(self, sent_at: float) -> float:
        return sent_at + self._job.lease_seconds - kill_margin(self._job.lease_seconds)

    def _watch(self) -> None:
        while not self._over.wait(max(0.0, self._stop_at - time.monotonic())):
            if time.monotonic() >= self._stop_at:
                self._warn("the lease cannot be confirmed any more; the job is requested to stop")
                self._context.request_cancel(LEASE_LOST)
                return

    def _beat(self) -> None:
        beat_at = time.monotonic() + self._every
        while not self._over.wait(min(LOOK_SECONDS, max(0.0, beat_at - time.monotonic()))):
            self._attempt(lambda: self._channel.store_lines(self._store))  # lines that fail are kept
            if self._channel.value is None and time.monotonic() < beat_at:
                continue
            answer = self._attempt(self._send)
            if answer is None:
                self._failures += 1
                wait = min(self._every, LOOK_SECONDS * 2 ** min(self._failures, 10))
            else:
                self._failures, wait = 0, self._every
            beat_at = time.monotonic() + wait
            if answer is not None and not self._continues(answer):
                return

    def _send(self) -> Beaten:
        """Progress that the store did not take is dropped: it only informs people."""
        sent_at = time.monotonic()
        job, progress = self._job, self._channel.take_progress()
        [answer] = self._store.heartbeat([Beat(job.job_id, job.attempt, job.lease_token, self._worker, progress)])
        if answer.status is Status.APPLIED:
            self._stop_at = max(self._stop_at, self._end_of(sent_at))
        return answer

    def _continues(self, answer: Beaten) -> bool:
        if answer.status is Status.REFUSED:
            self._context.request_cancel(LEASE_LOST)
            return False
        if answer.cancel and not self._context.cancelled:
            self._context.request_cancel("cancel_requested")
        return True

    def _attempt(self, call: Callable[[], Result]) -> Result | None:
        """None if it failed. This is the outer edge of the thread: an error that escaped would end the heartbeats."""
        try:
            return call()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if reason != self._reported:
                self._reported = reason
                self._warn(f"heartbeat or log lines failed and are sent again: {reason}")
            return None

    def _warn(self, text: str) -> None:
        _logger.warning("%s (job %s, attempt %d)", text, self._job.job_id, self._job.attempt)
