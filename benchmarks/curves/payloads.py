"""Enqueue in bulk and drain, against the size of the payload."""

from __future__ import annotations

import random
import statistics
import string
import time

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import drained, enqueue
from benchmarks.databases import Databases
from benchmarks.plots import Plot, Series

SIZES = {100: 20_000, 10_000: 10_000, 200_000: 1_000}  # bytes, and how many jobs
CHUNK_BYTES = 8_000_000  # of payload in one call
ROUNDS = 3


def run(handed: Databases, scale: float) -> Curve:
    rounds = ROUNDS if scale >= 0.5 else 1
    enqueued: dict[tuple[str, int], list[float]] = {(kind, size): [] for kind in handed.kinds for size in SIZES}
    finished: dict[tuple[str, int], list[float]] = {case: [] for case in enqueued}
    for turn in range(rounds):
        for kind, size in enqueued if turn % 2 == 0 else reversed(list(enqueued)):
            count = max(100, int(SIZES[size] * scale))
            with handed.store(kind) as store:
                began = time.perf_counter()
                enqueue(store, count, {"text": _text(size)}, chunk=min(1_000, max(1, CHUNK_BYTES // size)))
                enqueued[kind, size].append(count / (time.perf_counter() - began))
                finished[kind, size].append(drained(store, count, 1))
    rows = [[kind, f"{size:,} B", *_cells(enqueued[kind, size], size), *_cells(finished[kind, size], size)]
            for kind, size in enqueued]  # fmt: skip
    series = [
        Series(f"{kind}, {way}", [(size, statistics.median(rates[kind, size])) for size in SIZES])
        for kind in handed.kinds
        for way, rates in (("enqueue in bulk", enqueued), ("drain, 1 worker", finished))
    ]
    plot = Plot(
        "Throughput against the payload",
        "bytes of payload",
        "jobs/s",
        series,
        log_x=True,
        log_y=True,
        ticks_x=tuple(SIZES),
    )
    headings = ["store", "payload", "enqueue, jobs/s", "MB/s", "drain, jobs/s", "MB/s"]
    note = f"Text that does not compress well, so that it is not made small on its way; median of {rounds}."
    return Curve("payloads", "Throughput against the payload", headings, rows, {"": plot}, [note])


def _cells(rates: list[float], size: int) -> tuple[float, float]:
    rate = statistics.median(rates)
    return rate, rate * size / 1e6


def _text(size: int) -> str:
    return "".join(random.choices(string.ascii_letters + string.digits, k=size))
