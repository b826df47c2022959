"""Enqueue, claim and settle without running anything: the engine's own share of a job.

The cost of the audit is the same drain with the guards switched off. Runs with and without alternate, and the ratio is
taken between neighbours, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.databases import Databases, settle_down, switch_guards_off
from benchmarks.tables import markdown
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore

QUEUES, TASKS = ["default"], ["noop"]


def jobs(count: int) -> list[NewJob]:
    return [NewJob(task="noop", payload={"i": i}) for i in range(count)]


def rate(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def drain(store: SqlStore, batch: int) -> int:
    done = 0
    while claimed := store.claim("bench", batch, QUEUES, TASKS):
        reports = [Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed]
        assert all(answer.ok for answer in store.settle(reports))
        done += len(claimed)
    return done


def measure_drain(databases: Databases, kind: str, count: int, batch: int, *, guards: bool) -> float:
    with databases.store(kind) as store:
        if not guards:
            switch_guards_off(store)
        store.enqueue_many(jobs(count))
        settle_down(store)
        done: list[int] = []
        result = rate(count, lambda: done.append(drain(store, batch)))
        assert done == [count]
        assert store.counts() == {"succeeded": count}
        return result


def measure_enqueue(databases: Databases, kind: str, single: int, bulk: int) -> tuple[float, float]:
    with databases.store(kind) as store:
        settle_down(store)
        one_by_one = rate(single, lambda: [store.enqueue(job) for job in jobs(single)])
        many = rate(bulk, lambda: store.enqueue_many(jobs(bulk)))
        return one_by_one, many


def run(databases: Databases, *, scale: float = 1.0, repeats: int = 3) -> str:
    parts = []
    enqueue_rows = []
    for kind in databases.kinds:
        measured = [measure_enqueue(databases, kind, int(2000 * scale), int(50000 * scale)) for _ in range(repeats)]
        singles, bulks = zip(*measured, strict=True)
        enqueue_rows.append([kind, statistics.median(singles), statistics.median(bulks)])
    parts.append("### Enqueue, jobs/s\n\n" + markdown(["store", "one by one", "bulk"], enqueue_rows))
    rows = []
    for kind in databases.kinds:
        for batch, count in ((1, 1000), (10, 5000), (100, 20000), (500, 20000)):
            rows.append([kind, batch, *_audit_cost(databases, kind, int(count * scale), batch, repeats)])
    headings = ["store", "batch", "with audit, jobs/s", "without, jobs/s", "cost of the audit"]
    parts.append("### Claim + settle, and what the audit costs\n\n" + markdown(headings, rows))
    return "\n\n".join(parts)


def _audit_cost(databases: Databases, kind: str, count: int, batch: int, repeats: int) -> tuple[float, float, str]:
    pairs = []
    for turn in range(repeats):
        order = (True, False) if turn % 2 == 0 else (False, True)
        found = {guards: measure_drain(databases, kind, count, batch, guards=guards) for guards in order}
        pairs.append((found[True], found[False]))
    cost = statistics.median(1 - with_audit / without for with_audit, without in pairs)
    return (
        statistics.median(with_audit for with_audit, _ in pairs),
        statistics.median(without for _, without in pairs),
        f"{cost:.0%}",
    )
