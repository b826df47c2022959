"""Retention of a million finished jobs while a real worker drains no-op jobs: how much slower does it drain?

The worker removes the old jobs itself, by its own upkeep. A rule switches that on and off: short phases with and
without alternate in one run, so that whatever else the machine does meets both alike. Then what is left of the million
is removed as `holdfast retention run` does it, with the worker still draining. Every history is verified before,
meanwhile and after.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import text

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from benchmarks.worker import APP
from holdfast.domain.job import NewJob
from holdfast.maintenance.retention import Retention
from holdfast.maintenance.verify import verify
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.types import to_text
from holdfast.wiring.sql import histories, references
from tests.worker.finished import load_finished

OLD_JOBS = 1_000_000
PAIRS = 15
PHASE_SECONDS = 4.0
SETTLE_SECONDS = 1.0  # after a switch: what is under way comes to its end
STOCK = 20_000  # jobs that wait for the worker at any time, so that it never runs dry
START_SECONDS = 5.0
WEEK = 7 * 86_400.0


def run(handed: Databases, *, scale: float = 1.0) -> str:
    count = max(2_000, int(OLD_JOBS * scale))
    pairs = max(2, round(PAIRS * min(1.0, scale * 5)))
    rows = [[kind, *_measure(handed, kind, count, pairs)] for kind in handed.kinds]
    headings = ["store", "undisturbed, jobs/s", "with retention, jobs/s", "ratio", "median of ratios"]
    headings += ["pruned meanwhile, jobs/s", "pruned by a run, jobs/s", "violations before, during, after"]
    return f"### Draining while {count:,} old jobs are removed\n\n" + markdown(headings, rows)


def _measure(handed: Databases, kind: str, count: int, pairs: int) -> list[object]:
    with handed.store(kind) as store, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(APP)
        load_finished(store, count)
        settle_down(store)
        violations = [_violations(store)]
        store.set_retention("jobs", "default", "succeeded", None)
        _switch(store, on=False)
        with _worker(store, folder), _supply(store):
            time.sleep(START_SECONDS)
            phases = measure_phases(store, pairs)
            _switch(store, on=True)
            violations.append(_violations(store))
            pruned = _finish(store)
        violations.append(_violations(store))
        assert _pruned(store) == count
    return [*phases, pruned, ", ".join(map(str, violations))]


def measure_phases(store: SqlStore, pairs: int) -> list[object]:
    found = [_pair(store, turn) for turn in range(pairs)]
    undisturbed, disturbed = (statistics.mean(pair[on].drained for pair in found) for on in (False, True))
    ratio = statistics.median(pair[True].drained / pair[False].drained for pair in found)
    pruned = statistics.mean(pair[True].pruned for pair in found)
    return [undisturbed, disturbed, f"{disturbed / undisturbed:.2f}", f"{ratio:.2f}", pruned]


class Phase(NamedTuple):
    drained: float  # jobs a second
    pruned: float


def _pair(store: SqlStore, turn: int) -> dict[bool, Phase]:
    """Without and with retention, in an order that changes."""
    order = (False, True) if turn % 2 == 0 else (True, False)
    phases = {}
    for on in order:
        _switch(store, on=on)
        time.sleep(SETTLE_SECONDS)
        start, old = time_window(), _old(store)
        time.sleep(PHASE_SECONDS)
        end, left = time_window(), _old(store)
        assert (left < old) is on, "retention was not as it was told to be"
        phases[on] = Phase(_drained(store, start, end), (old - left) / (end - start).total_seconds())
    return phases


def _finish(store: SqlStore) -> float:
    began, before = time.monotonic(), _old(store)
    while _old(store):  # the worker has its batches, too
        for _ in Retention(lambda: store).jobs():
            pass
    return before / (time.monotonic() - began)


def time_window() -> datetime:
    return datetime.now(UTC)


def _switch(store: SqlStore, *, on: bool) -> None:
    store.set_retention("jobs", "old", "succeeded", WEEK if on else None)


def _drained(store: SqlStore, start: datetime, end: datetime) -> float:
    """Jobs a second, by the times at which the store has them finished."""
    is_sqlite = store.database.dialect == "sqlite"
    window = {"start": to_text(start) if is_sqlite else start, "end": to_text(end) if is_sqlite else end}
    statement = (
        "SELECT count(*) FROM holdfast_jobs WHERE state IN ('succeeded', 'failed', 'cancelled') AND state = 'succeeded'"
        " AND queue = 'default' AND finished_at > :start AND finished_at <= :end"
    )
    return int(_scalar(store, statement, **window)) / (end - start).total_seconds()


def _old(store: SqlStore) -> int:
    finished = "state IN ('succeeded', 'failed', 'cancelled') AND state = 'succeeded'"
    return int(_scalar(store, f"SELECT count(*) FROM holdfast_jobs WHERE {finished} AND queue = 'old'"))


def _pruned(store: SqlStore) -> int:
    return int(_scalar(store, "SELECT count(*) FROM holdfast_events WHERE event = 'pruned'"))


def _scalar(store: SqlStore, statement: str, **parameters: Any) -> Any:
    with store.database.engine.connect() as connection:
        return connection.scalar(text(statement), parameters)


def _violations(store: SqlStore) -> int:
    verdict = verify(histories(store), references=references(store))
    return len(verdict.violations) + verdict.unlisted


@contextmanager
def _worker(store: SqlStore, folder: str) -> Iterator[None]:
    url = store.database.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "holdfast", "worker", "tasks:app", "--processes", "2", "--log-level", "error"]
    environment = {**os.environ, "DATABASE_URL": url, "HOLDFAST_UPKEEP_SECONDS": "0.3"}
    worker = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        yield
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


@contextmanager
def _supply(store: SqlStore) -> Iterator[None]:
    """The same in every phase: somebody enqueues as fast as the worker drains."""
    over = threading.Event()
    waiting = "SELECT count(*) FROM holdfast_jobs WHERE state IN ('pending', 'retryable') AND queue = 'default'"

    def supply() -> None:
        while not over.wait(0.2):
            missing = STOCK - int(_scalar(store, waiting))
            for _ in range(0, missing, 2_000):
                store.enqueue_many([NewJob(task="noop") for _ in range(2_000)])

    thread = threading.Thread(target=supply, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
