"""Metrics of what workers and control planes do alike: the duties, the upkeep, wake-ups, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from holdfast.domain.events import (
    Event,
    Problem,
    Reaping,
    ScheduleFailed,
    StoreFailed,
    Ticked,
    UpkeepFailed,
    UpkeepStep,
    WakeUps,
)
from holdfast.observe.series import counter, counters

WAKE_UP_STATUSES = ("listening", "degraded", "off")


class DutyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._reaped = counter(registry, "reaped", "Expired leases this process took back from dead workers.")
        self._problems = counter(registry, "problems", "Unexpected problems that were survived; the log has each.")
        self._ticks = counters(registry, "schedule_ticks", "Ticks of schedules, by outcome.", "schedule", "outcome")
        self._schedule_failures = counters(registry, "schedule_failures", "Schedules found unable to fire.", "schedule")
        self._upkept = counters(registry, "upkeep", "Things that upkeep dealt with: jobs, histories, …", "chore")
        self._upkeep_seconds = counters(registry, "upkeep_seconds", "Time that upkeep spent in batches.", "chore")
        self._upkeep_failures = counters(registry, "upkeep_failures", "Chores that could not go on.", "chore")
        self._store_failures = counters(registry, "store_failures", "Failed calls of the store, by verb.", "what")
        wake_ups = Gauge("holdfast_wake_ups", "1 for the state of the wake-up channel.", ["status"], registry=registry)
        self._wake_up_statuses = {status: wake_ups.labels(status) for status in WAKE_UP_STATUSES}
        self.handlers: dict[type, Callable[[Any], None]] = {
            Problem: lambda _event: self._problems.inc(),
            Reaping: lambda event: self._reaped.inc(event.count),
            ScheduleFailed: self._schedule_failed,
            StoreFailed: self._store_failed,
            Ticked: self._ticked,
            UpkeepFailed: self._upkeep_failed,
            UpkeepStep: self._upkeep_step,
            WakeUps: self._wake_ups,
        }

    def __call__(self, event: Event) -> None:
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _store_failed(self, event: StoreFailed) -> None:
        self._store_failures[event.what,].inc()

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
