"""How long a job waits after the process that ran it was killed (SIGKILL), at the peer's defaults.

Two kinds. *Worker*: the worker and all that it started are killed at once, as when a container dies, and a new one is
started. *Runner*: only the process that the job ran in is killed, where that is not the worker itself. What counts is
the last of the cut jobs to begin again.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from benchmarks.peers import records
from benchmarks.peers.bench import START_SECONDS, Bench, Broken
from benchmarks.peers.processes import Worker, wait_for

JOBS = 4
JOB_SECONDS = 300.0  # longer than anything here: a job that was cut never ends by itself
SETTLED_SECONDS = 1.0  # from the first start: the others begin, and claims are written down


def worker_killed(bench: Bench, concurrency: int, limit: float) -> dict[str, Any]:
    worker = _with_running_jobs(bench, concurrency, JOBS)
    killed_at = time.monotonic()
    worker.kill()
    with bench.workers(1, concurrency):
        return _restarted(bench, killed_at, limit)


def runner_killed(bench: Bench, concurrency: int, limit: float) -> dict[str, Any] | None:
    """None where jobs run in the worker's own process.

    As many jobs as we have runners: with fewer, the job would find another one idle, and with more, others would take
    the place that it left.
    """
    worker = _with_running_jobs(bench, concurrency, os.cpu_count() or 1)
    try:
        number, runner = _runner(bench)
        if runner == worker.pid:
            return None
        killed_at = time.monotonic()
        os.kill(runner, signal.SIGKILL)
        return _restarted(bench, killed_at, limit, {number})
    finally:
        worker.kill()


def _with_running_jobs(bench: Bench, concurrency: int, jobs: int) -> Worker:
    bench.reset(concurrency)
    worker = bench.start(concurrency, JOB_SECONDS)
    try:
        bench.enqueue(jobs, "one")
        if not wait_for(lambda: records.count(bench.out) > 0, START_SECONDS):
            raise Broken("no job began")
        time.sleep(SETTLED_SECONDS)
    except BaseException:
        worker.kill()
        raise
    return worker


def _runner(bench: Bench) -> tuple[int, int]:
    """The first job, and the process that it said it runs in."""
    number, pid = bench.pids.read_text().splitlines()[0].split()
    return int(number), int(pid)


def _restarted(bench: Bench, killed_at: float, limit: float, only: set[int] | None = None) -> dict[str, Any]:
    def seen() -> tuple[set[int], dict[int, float]]:
        began, again = records.restarts(records.read(bench.out), killed_at)
        return (began if only is None else only), again

    def back() -> bool:
        cut, again = seen()
        return cut <= set(again)

    came_back = wait_for(back, limit, pause=0.02)
    cut, again = seen()
    return {
        "cut": len(cut),
        "seconds": max(again[number] for number in cut) if came_back else None,
        "limit": limit,
        "missing": len(cut - set(again)),
    }
