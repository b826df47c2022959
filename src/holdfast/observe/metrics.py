"""The worker's metrics for Prometheus: a subscriber that turns events into counters, gauges and histograms.

It sits on the hot path. So the child of every label set is looked up once and kept, and an event finds its handler by
its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.domain.answers import Status
from holdfast.domain.events import (
    Beats,
    Claims,
    Event,
    LeaseGone,
    Reaping,
    RunEnded,
    RunMoved,
    RunnerEnded,
    ScheduleFailed,
    StoreFailed,
    Ticked,
    UpkeepFailed,
    UpkeepStep,
    WakeUps,
    WorkerMoved,
)
from holdfast.domain.worker_states import RunState, WorkerState

WAKE_UP_STATUSES = ("listening", "degraded", "off")
STATEMENT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RUN_SECONDS = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
MARGIN_SECONDS = (0.0, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 300.0)
# Labels come from manifests and from our own words. Should one of them run wild, it must not fill the scraper's disk.
MOST_CHILDREN = 2000
OTHER = "other"

Child = TypeVar("Child", bound=Counter | Histogram)


class _Children(dict[tuple[str, ...], Child]):
    """The children of a metric by their label values; a miss asks the metric, which takes a lock, once."""

    def __init__(self, labels: Callable[..., Child], names: int) -> None:
        super().__init__()
        self._labels = labels
        self._other = (OTHER,) * names

    def __missing__(self, values: tuple[str, ...]) -> Child:
        if len(self) >= MOST_CHILDREN and values != self._other:
            return self[self._other]
        child = self[values] = self._labels(*values)
        return child


class MetricsSubscriber:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_gauges(registry)
        self._make_counters(registry)
        self._make_histograms(registry)
        self._handlers: dict[type, Callable[[Any], None]] = {
            WorkerMoved: self._worker_moved,
            RunMoved: self._run_moved,
            Claims: self._claims,
            RunEnded: self._run_ended,
            Beats: self._beats,
            LeaseGone: self._lease_gone,
            RunnerEnded: self._runner_ended,
            StoreFailed: self._store_failed,
            Reaping: self._reaping,
            Ticked: self._ticked,
            ScheduleFailed: self._schedule_failed,
            WakeUps: self._wake_ups,
            UpkeepStep: self._upkeep_step,
            UpkeepFailed: self._upkeep_failed,
        }

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        worker = Gauge("holdfast_worker_state", "1 for the state the worker is in.", ["state"], registry=registry)
        self._worker_states = {state: worker.labels(str(state)) for state in WorkerState}
        self._worker_states[WorkerState.STARTING].set(1)
        runs = Gauge("holdfast_job_runs", "Job runs of this worker by their state.", ["state"], registry=registry)
        self._run_states = {state: runs.labels(str(state)) for state in RunState}
        wake_ups = Gauge("holdfast_wake_ups", "1 for the state of the wake-up channel.", ["status"], registry=registry)
        self._wake_up_statuses = {status: wake_ups.labels(status) for status in WAKE_UP_STATUSES}

    def _make_counters(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"holdfast_{name}", text, labels, registry=registry)

        def children(name: str, text: str, *labels: str) -> _Children[Counter]:
            return _Children(counter(name, text, *labels).labels, len(labels))

        self._claim_count = counter("claims", "Claims answered by the store, empty ones too.")
        self._claimed_jobs = counter("claimed_jobs", "Jobs claimed.")
        self._reaped = counter("reaped", "Expired leases this worker took back from dead workers.")
        self._runs = children("runs", "Reports answered by the store.", "task", "outcome", "status")
        self._leases_lost = children("leases_lost", "Leases lost or not confirmed in time.", "task")
        self._refusals = children("refusals", "Reports the store refused.", "task")
        self._runner_restarts = children("runner_restarts", "Runners that ended, by reason.", "why")
        self._ticks = children("schedule_ticks", "Ticks of schedules, by outcome.", "schedule", "outcome")
        self._schedule_failures = children("schedule_failures", "Schedules found unable to fire.", "schedule")
        self._upkept = children("upkeep", "Things that upkeep of this worker dealt with: jobs, histories, …", "chore")
        self._upkeep_seconds = children("upkeep_seconds", "Time that upkeep of this worker spent in batches.", "chore")
        self._upkeep_failures = children("upkeep_failures", "Chores that could not go on.", "chore")
        self._store_failures = children("store_failures", "Failed calls of the store, by verb.", "what")

    def _make_histograms(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"holdfast_{name}_seconds", text, labels, buckets=buckets, registry=registry)

        self._claim_seconds = histogram("claim", "How long a claim took.", STATEMENT_SECONDS)
        self._heartbeat_seconds = histogram("heartbeat", "How long a heartbeat took.", STATEMENT_SECONDS)
        self._margin_seconds = histogram(
            "heartbeat_margin", "The least time left on any lease when a heartbeat was confirmed.", MARGIN_SECONDS
        )
        self._run_seconds = _Children(histogram("run", "How long a run took.", RUN_SECONDS, "task").labels, 1)

    def _worker_moved(self, event: WorkerMoved) -> None:
        self._worker_states[event.before].set(0)
        self._worker_states[event.after].set(1)

    def _run_moved(self, event: RunMoved) -> None:
        if event.before is not None:
            self._run_states[event.before].dec()
        if event.after is not None:
            self._run_states[event.after].inc()

    def _claims(self, event: Claims) -> None:
        self._claim_count.inc()
        self._claimed_jobs.inc(event.count)
        self._claim_seconds.observe(event.seconds)

    def _run_ended(self, event: RunEnded) -> None:
        self._runs[event.task, event.outcome, event.status].inc()
        if event.status == Status.REFUSED:
            self._refusals[event.task,].inc()
        if event.duration_ms is not None:
            self._run_seconds[event.task,].observe(event.duration_ms / 1000)

    def _beats(self, event: Beats) -> None:
        self._heartbeat_seconds.observe(event.seconds)
        self._margin_seconds.observe(event.margin)

    def _lease_gone(self, event: LeaseGone) -> None:
        self._leases_lost[event.task,].inc()

    def _runner_ended(self, event: RunnerEnded) -> None:
        by_itself = "exit" if event.signal is None else "signal"
        self._runner_restarts[event.why or by_itself,].inc()

    def _store_failed(self, event: StoreFailed) -> None:
        self._store_failures[event.what,].inc()

    def _reaping(self, event: Reaping) -> None:
        self._reaped.inc(event.count)

    def _ticked(self, event: Ticked) -> None:
        self._ticks[event.schedule, event.outcome].inc()

    def _schedule_failed(self, event: ScheduleFailed) -> None:
        self._schedule_failures[event.schedule,].inc()

    def _upkeep_step(self, event: UpkeepStep) -> None:
        self._upkept[event.chore,].inc(event.count)
        self._upkeep_seconds[event.chore,].inc(event.seconds)

    def _upkeep_failed(self, event: UpkeepFailed) -> None:
        self._upkeep_failures[event.chore,].inc()

    def _wake_ups(self, event: WakeUps) -> None:
        for status, gauge in self._wake_up_statuses.items():
            gauge.set(status == event.status)
