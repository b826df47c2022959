"""What the engine wants to show, as a list: each with the figure that decides it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.peers import results
from benchmarks.peers.ratios import Ratio, of_neighbours
from benchmarks.peers.results import Results
from benchmarks.peers.variants import HOLDFAST_POSTGRES, HOLDFAST_SQLITE, HUEY_SQLITE, REFERENCE

LEASE_SECONDS = 60.0
WORKER_SECONDS = LEASE_SECONDS + 15.0


@dataclass(frozen=True)
class Shown:
    """A promise, what was found, and whether it is kept; None where it was not measured."""

    promise: str
    found: str
    kept: bool | None


@dataclass(frozen=True)
class RatioPromise:
    text: str
    measure: str
    ours: str
    theirs: str
    value: str
    kept: Callable[[float], bool]

    def shown(self, found: Results) -> Shown:
        ratio = of_neighbours(found.of(self.ours, self.measure), found.of(self.theirs, self.measure), self.value)
        if ratio is None:
            return Shown(self.text, "not measured", None)
        return Shown(self.text, in_words(ratio), self.kept(ratio.median))


@dataclass(frozen=True)
class FigurePromise:
    text: str
    measure: str
    ours: str
    value: str
    unit: str
    kept: Callable[[float], bool]

    def shown(self, found: Results) -> Shown:
        median = median_of(found, self.ours, self.measure, self.value)
        if median is None:
            return Shown(self.text, "not measured", None)
        return Shown(self.text, f"{median:.2f} {self.unit}", self.kept(median))


PROMISES: tuple[RatioPromise | FigurePromise, ...] = (
    RatioPromise(
        "Drain, 1 worker: 1.1 times pgqueuer (goal)",
        results.DRAIN_ONE,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "rate",
        lambda ratio: ratio >= 1.1,
    ),
    RatioPromise(
        "Drain, 1 worker: 0.7 times pgqueuer (floor)",
        results.DRAIN_ONE,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "rate",
        lambda ratio: ratio >= 0.7,
    ),
    RatioPromise(
        "Drain, 1 worker: 0.6 times our raw claim + settle loop with audit (floor)",
        results.DRAIN_ONE,
        HOLDFAST_POSTGRES,
        results.RAW_LOOP,
        "rate",
        lambda ratio: ratio >= 0.6,
    ),
    RatioPromise(
        "Drain, 2 workers: 1 times pgqueuer (goal)",
        results.DRAIN_TWO,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "rate",
        lambda ratio: ratio >= 1.0,
    ),
    RatioPromise(
        "Bulk enqueue: 1.5 times pgqueuer",
        results.ENQUEUE_BULK,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "rate",
        lambda ratio: ratio >= 1.5,
    ),
    RatioPromise(
        "Single enqueue: 1 times pgqueuer",
        results.ENQUEUE_ONE,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "rate",
        lambda ratio: ratio >= 1.0,
    ),
    RatioPromise(
        "Single enqueue: 0.8 times the same statement through bare psycopg",
        results.ENQUEUE_ONE,
        HOLDFAST_POSTGRES,
        results.BARE_INSERT,
        "rate",
        lambda ratio: ratio >= 0.8,
    ),
    RatioPromise(
        "Pickup latency, p50: no more than pgqueuer's",
        results.LATENCY,
        HOLDFAST_POSTGRES,
        REFERENCE,
        "p50",
        lambda ratio: ratio <= 1.0,
    ),
    FigurePromise(
        "Pickup latency, p99: under 10 ms", results.LATENCY, HOLDFAST_POSTGRES, "p99", "ms", lambda found: found < 10
    ),
    RatioPromise(
        "SQLite drain: 2 times huey on SQLite",
        results.DRAIN_ONE,
        HOLDFAST_SQLITE,
        HUEY_SQLITE,
        "rate",
        lambda ratio: ratio >= 2.0,
    ),
    FigurePromise(
        "Idle: at most 1 query/s", results.IDLE, HOLDFAST_POSTGRES, "queries", "queries/s", lambda found: found <= 1
    ),
    FigurePromise("Idle: under 1 % of a core", results.IDLE, HOLDFAST_POSTGRES, "cpu", "%", lambda found: found < 1),
    FigurePromise(
        "Memory of supervisor and runners: at most 150 MiB (PSS)",
        results.IDLE,
        HOLDFAST_POSTGRES,
        "pss",
        "MiB",
        lambda found: found <= 150,
    ),
    FigurePromise(
        "Memory of supervisor and runners: at most 150 MiB (RSS, shared pages counted each time)",
        results.IDLE,
        HOLDFAST_POSTGRES,
        "rss",
        "MiB",
        lambda found: found <= 150,
    ),
    FigurePromise(
        "After SIGKILL of a runner: within 1 s",
        results.RECOVERY_RUNNER,
        HOLDFAST_POSTGRES,
        "seconds",
        "s",
        lambda found: found <= 1,
    ),
    FigurePromise(
        f"After SIGKILL of the worker: within {WORKER_SECONDS:.0f} s (lease + 15 s)",
        results.RECOVERY_WORKER,
        HOLDFAST_POSTGRES,
        "seconds",
        "s",
        lambda found: found <= WORKER_SECONDS,
    ),
)


def median_of(found: Results, variant: str, measure: str, value: str) -> float | None:
    known = [
        float(sample.values[value]) for sample in found.of(variant, measure) if sample.values.get(value) is not None
    ]
    return statistics.median(known) if known else None


def in_words(ratio: Ratio) -> str:
    if ratio.pairs == 1:
        return f"{ratio.median:.2f}"
    return f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f}, {ratio.pairs} times)"
