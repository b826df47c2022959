"""What a claim and its report cost against the number of jobs that are due.

Every size has a database of its own, filled before; then they take turns, call by call, so that neither the machine nor
the warmth of a cache favours one. What a turn took away is enqueued again behind the others.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack

from benchmarks.curves.curve import Curve, spread
from benchmarks.curves.draining import QUEUE, TASK, enqueue
from benchmarks.curves.plans import claim_buffers
from benchmarks.databases import Databases, settle_down
from benchmarks.plots import Plot, Series
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore

SIZES = {"sqlite": (1_000, 10_000, 100_000, 1_000_000), "postgres": (1_000, 10_000, 100_000, 1_000_000, 10_000_000)}
BATCHES = (1, 10, 100)
ROUNDS = 60
WARM_UP = 5  # of them are not counted: plans, pages and files
FILL = 250_000  # rows in one statement

Case = tuple[int, int]  # how many are due, how many are claimed


def run(handed: Databases, scale: float) -> Curve:
    rows: list[list[object]] = []
    lines: list[Series] = []
    scaled = {kind: sorted({max(1_000, int(size * scale)) for size in SIZES[kind]}) for kind in handed.kinds}
    columns = sorted({size for sizes in scaled.values() for size in sizes})
    for kind, sizes in scaled.items():
        times, touched = _measure(handed, kind, sizes, max(10, int(ROUNDS * min(1.0, scale * 10))))
        for batch in BATCHES:
            values = [times[size, batch] for size in sizes]
            cells = [f"{times[size, batch]:.2f}" if size in sizes else "" for size in columns]
            looked = [touched[size, batch] for size in sizes] if touched else []
            rows.append([kind, batch, *cells, f"{spread(values):.2f}", " / ".join(str(n) for n in looked)])
            lines.append(Series(f"{kind}, batch {batch}", list(zip(sizes, values, strict=True))))
    due = [f"{size:,} due" for size in columns]
    plot = Plot("Claim and settle against the backlog", "jobs that are due", "ms", lines, log_x=True, log_y=True)
    return Curve(
        "backlog",
        "Claim and settle against the backlog, median ms",
        ["store", "batch", *due, "largest / smallest", "buffers of the claim"],
        rows,
        {"": plot},
        ["Buffers: pages that the claiming statement touches, one figure for each size."],
    )


def _measure(handed: Databases, kind: str, sizes: list[int], rounds: int) -> tuple[dict[Case, float], dict[Case, int]]:
    with ExitStack() as open_ones:
        stores = {size: open_ones.enter_context(handed.store(kind)) for size in sizes}
        for size, store in stores.items():
            _fill(store, size)
            settle_down(store)
        touched = {
            (size, batch): claim_buffers(store, batch)
            for size, store in stores.items()
            for batch in BATCHES
            if kind == "postgres"
        }
        for store in stores.values():
            enqueue(store, sum(BATCHES))  # what was claimed to be explained
        took: dict[Case, list[float]] = {(size, batch): [] for size in sizes for batch in BATCHES}
        for _ in range(rounds):
            for (size, batch), values in took.items():
                values.append(_claim_and_settle(stores[size], batch))
                enqueue(stores[size], batch)
    return {case: statistics.median(values[WARM_UP:]) for case, values in took.items()}, touched


def _claim_and_settle(store: SqlStore, batch: int) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    claimed = store.claim("bench", batch, [QUEUE], [TASK])
    answers = store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])
    took = (time.perf_counter() - began) * 1000
    assert len(claimed) == batch
    assert all(answer.ok for answer in answers)
    return took


def _fill(store: SqlStore, count: int) -> None:
    if store.database.dialect != "postgresql":
        enqueue(store, count, chunk=5_000)
        return
    with store.database.engine.connect() as connection:  # the triggers give each its `enqueued` event
        for start in range(0, count, FILL):
            portion = min(FILL, count - start)
            connection.exec_driver_sql(
                f"INSERT INTO holdfast_jobs (task) SELECT '{TASK}' FROM generate_series(1, {portion})"
            )
