"""One control plane with more and more workers that long-poll it (Postgres): how soon one of them has a job, and what
the waiting costs. The clients are simulated, all in one process; the jobs are enqueued into the database by another."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil

from benchmarks.curves.curve import Curve
from benchmarks.curves.usage import Used, over
from benchmarks.databases import Databases
from benchmarks.doors import Ground
from benchmarks.plots import Plot, Series
from holdfast.bench.timing import quantile
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore

CLIENTS = (1, 10, 50, 100, 250, 500)
JOBS = 300
IDLE_SECONDS = 30.0
SETTLE_SECONDS = 2.0
PAUSE_SECONDS = (0.02, 0.08)


def run(handed: Databases, scale: float) -> Curve:
    count, idle_seconds = max(30, int(JOBS * scale)), max(3.0, IDLE_SECONDS * min(1.0, scale * 2))
    rows: list[list[object]] = []
    latencies: dict[int, list[float]] = {}
    for clients in CLIENTS:
        with handed.store("postgres") as store, tempfile.TemporaryDirectory() as folder:
            ground = Ground(store, folder)
            token = ground.token("worker")
            with ground.control_plane() as url, _waiting(url, clients, token) as process:
                idle = _idle(handed, store, url, idle_seconds)
                latencies[clients] = _pickup(store, process, count)
        rows.append([clients, *_quantiles(latencies[clients]), idle.cores["plane"], idle.cores["database"],
                     idle.transactions])  # fmt: skip
    names = {"p50": 0.5, "p99": 0.99}
    plot = Plot(
        "Pickup over a long poll",
        "workers that wait at one control plane",
        "ms",
        [Series(n, [(c, quantile(found, share)) for c, found in latencies.items()]) for n, share in names.items()],
        log_x=True,
        ticks_x=CLIENTS,
    )
    headings = ["waiting", "pickup p50, ms", "p99, ms", "idle: cores of the plane", "of the database", "queries/s"]
    note = (
        f"{count} jobs each, from the call of enqueue at the database to the answer at the client. Idle: nothing to"
        f" claim for {idle_seconds:.0f} s; the periodic duties and the looks of the plane are in it."
    )
    return Curve("long_polls", "Workers that long-poll one control plane", headings, rows, {"": plot}, [note])


@contextmanager
def _waiting(url: str, clients: int, token: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.curves.waiting_clients", str(urlsplit(url).port), str(clients)]
    environment = {**os.environ, "HOLDFAST_TOKEN": token}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait()


def _idle(handed: Databases, store: SqlStore, url: str, seconds: float) -> Used:
    time.sleep(SETTLE_SECONDS)
    plane = listener(urlsplit(url).port or 0)
    return over(seconds, store, {"plane": plane, "database": handed.server.pid})


def listener(port: int) -> int:
    """The process that listens there."""
    listening = (found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN and found.pid)
    return next(found.pid for found in listening if found.pid and found.laddr and found.laddr.port == port)


def _pickup(store: SqlStore, process: subprocess.Popen[str], count: int) -> list[float]:
    assert process.stdout is not None
    found = []
    for _ in range(count):
        time.sleep(random.uniform(*PAUSE_SECONDS))
        store.enqueue(NewJob(task="pickup", payload={"at": time.time()}))
        found.append(float(process.stdout.readline()))
    return found


def _quantiles(found: list[float]) -> tuple[float, float]:
    return statistics.median(found), quantile(found, 0.99)
