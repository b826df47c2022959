"""The worker's metrics for Prometheus: a subscriber that turns events into counters, gauges and histograms.

It sits on the hot path. So the child of every label set is looked up once and kept, and an event finds its handler by
its type. What a control plane counts as well is in `duty_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from holdfast.domain.answers import Status
from holdfast.domain.events import (
    Beats,
    Claims,
    Event,
    LeaseGone,
    RunEnded,
    RunMoved,
    RunnerEnded,
    RunSucceeded,
    WorkerMoved,
)
from holdfast.domain.lifecycle import Event as Recorded
from holdfast.domain.worker_states import RunState, WorkerState
from holdfast.observe.duty_metrics import DutyMetrics
from holdfast.observe.series import STATEMENT_SECONDS, counter, counters, histogram, histograms

RUN_SECONDS = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
WAIT_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
MARGIN_SECONDS = (0.0, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 300.0)


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
            RunSucceeded: self._run_ended,
            Beats: self._beats,
            LeaseGone: self._lease_gone,
            RunnerEnded: self._runner_ended,
            **DutyMetrics(registry).handlers,
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

    def _make_counters(self, registry: CollectorRegistry) -> None:
        self._claim_count = counter(registry, "claims", "Claims answered by the store, empty ones too.")
        self._claimed_jobs = counter(registry, "claimed_jobs", "Jobs claimed.")
        self._runs = counters(registry, "runs", "Reports answered by the store.", "task", "outcome", "status")
        self._dead = counters(registry, "dead_letters", "Jobs that failed for good in a run of this worker.", "task")
        self._leases_lost = counters(registry, "leases_lost", "Leases lost or not confirmed in time.", "task")
        self._refusals = counters(registry, "refusals", "Reports the store refused.", "task")
        self._runner_restarts = counters(registry, "runner_restarts", "Runners that ended, by reason.", "why")

    def _make_histograms(self, registry: CollectorRegistry) -> None:
        self._claim_seconds = histogram(registry, "claim", "How long a claim took.", STATEMENT_SECONDS)
        self._heartbeat_seconds = histogram(registry, "heartbeat", "How long a heartbeat took.", STATEMENT_SECONDS)
        self._margin_seconds = histogram(
            registry,
            "heartbeat_margin",
            "The least time left on any lease when a heartbeat was confirmed.",
            MARGIN_SECONDS,
        )
        self._run_seconds = histograms(registry, "run", "How long a run took.", RUN_SECONDS, "task")
        self._wait_seconds = histograms(
            registry,
            "wait",
            "How long a job had been due when it was claimed; not of jobs that were given back or requeued before.",
            WAIT_SECONDS,
            "queue",
        )

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
        for queue, seconds in event.waits:
            self._wait_seconds[queue,].observe(seconds)

    def _run_ended(self, event: RunEnded) -> None:
        self._runs[event.task, event.outcome, event.status].inc()
        if event.status == Status.REFUSED:
            self._refusals[event.task,].inc()
        if event.event == Recorded.FAILED and event.status == Status.APPLIED:
            self._dead[event.task,].inc()
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
