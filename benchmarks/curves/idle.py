"""A thousand idle workers: what they cost the database when they poll it, and when they take jobs through Redis.

The workers are simulated, a few processes of some hundreds each; what they ask, and how often, is what real ones do.
"""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import enqueue, url_of
from benchmarks.curves.idle_clients import JITTER, POLL_SECONDS
from benchmarks.curves.usage import Used, over
from benchmarks.databases import Databases
from benchmarks.plots import Plot, Series
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.valkey import ValkeyServer

WORKERS = (100, 250, 500, 1_000)
PROCESSES = 4
SECONDS = 30.0
SETTLE_SECONDS = 3.0
WAYS = {"polling": "poll the database", "streams": "the Redis door", "blocked": "blocked in XREADGROUP"}
ASKS = 1 / (POLL_SECONDS * statistics.mean(JITTER))  # a second, of one worker that has found nothing for a while
USED_UP = 0.8  # of one core: as many as a database would be asked to bear for nothing


def run(handed: Databases, scale: float) -> Curve:
    seconds = max(4.0, SECONDS * min(1.0, scale * 2))
    rows: list[list[object]] = []
    found: dict[tuple[str, int], Used] = {}
    with handed.store("postgres") as store:
        _finish_some(store)
        for workers in (max(PROCESSES, int(count * min(1.0, scale * 10))) for count in WORKERS):
            for way, words in WAYS.items():
                used, asked, ms = _measure(handed, store, way, workers, seconds)
                found[way, workers] = used
                fit, kept_up = _fit(used, asked), f"{asked / (workers * ASKS):.0%}" if asked else ""
                cores = (used.cores["database"], used.cores["redis"])
                rows.append([words, workers, asked, kept_up, used.transactions, *cores, ms, fit])
    sizes = sorted({workers for _, workers in found})
    series = [Series(words, [(n, found[way, n].cores["database"]) for n in sizes]) for way, words in WAYS.items()]
    plot = Plot("Idle workers and the database's processor", "idle workers", "cores", series)
    headings = ["they", "workers", "questions/s", "of what they want", "queries/s", "cores, database", "cores, Redis"]
    note = (
        f"{seconds:.0f} s each, nothing to claim. How many would fit: until the database spends {USED_UP} of a core on"
        " being asked for nothing, by what one question cost it here. Where they get less than they want, the machine"
        " is full: workers, simulated or not, share it with the database."
    )
    headings += ["ms a question", f"would fit in {USED_UP} core"]
    return Curve("idle", "Idle workers: polling against the Redis door", headings, rows, {"": plot}, [note])


def _fit(used: Used, asked: float) -> str:
    """So many workers as ask for that much of a core; by the cost of a question, because a full machine asks less."""
    if asked == 0 or used.cores["database"] < 0.005:
        return "not bounded here"
    return f"{USED_UP / (used.cores['database'] / asked * ASKS):,.0f}"


def _finish_some(store: SqlStore) -> None:
    """A database in use, with nothing due."""
    enqueue(store, 2_000)
    while claimed := store.claim("bench", 500):
        store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])


def _measure(handed: Databases, store: SqlStore, way: str, workers: int, seconds: float) -> tuple[Used, float, float]:
    """What the servers used, how many questions a second there were, and how many milliseconds each took."""
    valkey = ValkeyServer()
    valkey.start()
    try:
        with _clients(way, workers // PROCESSES, url_of(store), valkey.url) as processes:
            _wait_for_all(processes, 0 if way == "blocked" else workers // PROCESSES)
            time.sleep(SETTLE_SECONDS)
            told: list[list[tuple[int, float]]] = []

            def wait(length: float) -> None:
                told.append([_last(process) for process in processes])
                time.sleep(length)
                told.append([_last(process) for process in processes])

            used = over(seconds, store, {"database": handed.server.pid, "redis": valkey.pid}, wait)
    finally:
        valkey.close()
    before, after = ([sum(column) for column in zip(*each, strict=True)] for each in told)
    asked, took = after[0] - before[0], after[1] - before[1]
    return used, asked / used.seconds, 1000 * took / max(1, asked)


@contextmanager
def _clients(way: str, count: int, database: str, redis: str) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "benchmarks.curves.idle_clients", way, str(count), database, redis]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for _ in range(PROCESSES)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _wait_for_all(processes: list[subprocess.Popen[str]], count: int) -> None:
    """Until each of the workers has asked once; those that are blocked have when they say anything."""
    for process in processes:
        while _last(process)[0] < count:
            pass


def _last(process: subprocess.Popen[str]) -> tuple[int, float]:
    """What it has said last, once it says something new."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    text = ""
    while "\n" not in text or select.select([descriptor], [], [], 0)[0]:
        portion = os.read(descriptor, 65_536).decode()
        assert portion, "a process of simulated workers has ended"
        text += portion
    asked, took = text.strip().splitlines()[-1].split()
    return int(asked), float(took)
