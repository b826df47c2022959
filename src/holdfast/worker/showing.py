"""What a worker shows of itself in the `detail` of its row: memory, and what its runners run. For people to see, and
small: a worker over HTTP may not tell more than a few kilobytes."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.runners.pool import Pool
from holdfast.runners.process import RunnerProcess, resident
from holdfast.worker.leases import LeaseBook

MOST_RUNNERS = 64
MOST_JOBS = 24  # of all runners together, the first of each before the second of any
LONGEST_NAME = 60


def detail_of(pool: Pool, book: LeaseBook, now: float) -> dict[str, Any]:
    """Memory in KB: of the worker itself, and of each of its runners with what that has started."""
    used = {runner.pid: runner.memory() >> 10 for runner in pool}
    own = resident(os.getpid()) >> 10
    running = _running([runner for runner in pool if runner.pid in used], book, now)
    shown = [
        {"pid": runner.pid, "memory_kb": used[runner.pid], "jobs": len(runner.jobs), "running": running[runner.pid]}
        for runner in list(pool)[:MOST_RUNNERS]
    ]
    return {"memory_kb": own + sum(used.values()), "supervisor_kb": own, "runners": shown}


def _running(runners: list[RunnerProcess], book: LeaseBook, now: float) -> dict[int, list[dict[str, Any]]]:
    """Since when by the clock of this host."""
    today = datetime.now(UTC)
    found: dict[int, list[dict[str, Any]]] = {runner.pid: [] for runner in runners}
    turns = [
        (turn, runner.pid, lease_id)
        for runner in runners
        for turn, lease_id in enumerate(name for name, started in runner.jobs.items() if started)
    ]
    for _turn, pid, lease_id in sorted(turns)[:MOST_JOBS]:
        held = book.get(lease_id)
        if held is not None and held.started_at is not None:
            since = today - timedelta(seconds=now - held.started_at)
            task = held.job.task[:LONGEST_NAME]
            found[pid].append(
                {"job_id": held.job.job_id, "task": task, "since": since.isoformat(timespec="milliseconds")}
            )
    return found
