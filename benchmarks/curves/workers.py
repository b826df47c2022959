"""Drain rate against the number of workers: real processes, two runners each."""

from __future__ import annotations

import statistics

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import drain_rate
from benchmarks.databases import Databases
from benchmarks.plots import Plot, Series

JOBS = 50_000
WORKERS = (1, 2, 4, 8)
ROUNDS = 3


def run(handed: Databases, scale: float) -> Curve:
    count = max(1_000, int(JOBS * scale))
    rounds = ROUNDS if scale >= 0.5 else 1
    found: dict[tuple[str, int], list[float]] = {(kind, n): [] for kind in handed.kinds for n in WORKERS}
    for turn in range(rounds):
        # There and back again: whatever the machine does meanwhile meets all of them alike.
        for kind, workers in found if turn % 2 == 0 else reversed(list(found)):
            with handed.store(kind) as store:
                found[kind, workers].append(drain_rate(store, count, workers))
    rates = {case: statistics.median(values) for case, values in found.items()}
    rows = [
        [kind, *(rates[kind, n] for n in WORKERS), *(f"{rates[kind, n] / rates[kind, 1]:.2f}" for n in WORKERS[1:])]
        for kind in handed.kinds
    ]
    headings = ["store", *(f"{n}, jobs/s" for n in WORKERS), *(f"{n} to 1" for n in WORKERS[1:])]
    plot = Plot(
        "Drain rate against workers",
        "workers of two runners each",
        "jobs/s",
        [Series(kind, [(n, rates[kind, n]) for n in WORKERS]) for kind in handed.kinds],
        log_x=True,
        ticks_x=WORKERS,
    )
    note = f"{count:,} no-op jobs a run, median of {rounds}; workers, runners and database share one machine."
    return Curve("workers", "Drain rate against workers", headings, rows, {"": plot}, [note])
