"""SQLite against Postgres: enqueue one by one and in bulk, drain with one and with two workers."""

from __future__ import annotations

import statistics
import time

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import QUEUE, TASK, drained, enqueue
from benchmarks.databases import Databases, settle_down
from benchmarks.plots import Plot, Series
from holdfast.domain.job import NewJob

SINGLE, BULK = 3_000, 50_000
ROUNDS = 3
WAYS = ("enqueue one by one", "enqueue in bulk", "drain, 1 worker", "drain, 2 workers")


def run(handed: Databases, scale: float) -> Curve:
    single, bulk = max(200, int(SINGLE * scale)), max(1_000, int(BULK * scale))
    rounds = ROUNDS if scale >= 0.5 else 1
    found: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in handed.kinds for way in WAYS}
    for turn in range(rounds):
        for kind in handed.kinds if turn % 2 == 0 else reversed(handed.kinds):
            for way, rate in _rates(handed, kind, single, bulk).items():
                found[kind, way].append(rate)
    rates = {case: statistics.median(values) for case, values in found.items()}
    first, *others = handed.kinds
    rows = [
        [
            way,
            *(rates[kind, way] for kind in handed.kinds),
            *(f"{rates[k, way] / rates[first, way]:.2f}" for k in others),
        ]
        for way in WAYS
    ]
    plot = Plot(
        "Drain rate, SQLite against Postgres",
        "workers of two runners each",
        "jobs/s",
        [Series(kind, [(n, rates[kind, WAYS[1 + n]]) for n in (1, 2)]) for kind in handed.kinds],
        ticks_x=(1, 2),
    )
    headings = ["", *(f"{kind}, jobs/s" for kind in handed.kinds), *(f"{kind} / {first}" for kind in others)]
    note = f"{single:,} jobs one by one, {bulk:,} in bulk and to drain; median of {rounds}, in turn."
    return Curve("stores", "SQLite against Postgres", headings, rows, {"": plot}, [note])


def _rates(handed: Databases, kind: str, single: int, bulk: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with handed.store(kind) as store:
        settle_down(store)
        began = time.perf_counter()
        for _ in range(single):
            store.enqueue(NewJob(task=TASK, queue=QUEUE))
        found[WAYS[0]] = single / (time.perf_counter() - began)
    for workers in (1, 2):
        with handed.store(kind) as store:
            began = time.perf_counter()
            enqueue(store, bulk)
            found[WAYS[1]] = bulk / (time.perf_counter() - began)
            found[WAYS[1 + workers]] = drained(store, bulk, workers)
    return found
