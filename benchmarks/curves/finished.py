"""Draining with ten million finished jobs in the table, and after ten million were settled in a row, against a fresh
database (Postgres).

The finished ones are written past the guards, with the histories that they would have left, and the statistics are
then made as autovacuum would. Those in a row are really enqueued, claimed and settled through the store, by several
processes, and rolled up by the minute as workers do beside their work; nothing is done for the tables beside what
autovacuum does by itself. Then the three are drained in turn.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
from collections import Counter

from sqlalchemy import text

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import drain_rate, url_of
from benchmarks.databases import Databases
from benchmarks.plots import Plot, Series
from holdfast.stores.sql_store import SqlStore
from tests.worker.finished import load_finished

FINISHED = SETTLED = 10_000_000
JOBS = 30_000
ROUNDS = 5
FILL = 500_000  # jobs in one transaction
PROCESSES = 3
BATCH = 500
POINTS = 40
TABLES = ("holdfast_jobs", "holdfast_events")
# Those that no constraint needs.
INDEXES = f"""
    SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid IN ({", ".join(f"'{table}'::regclass" for table in TABLES)})
      AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)"""


def run(handed: Databases, scale: float) -> Curve:
    finished, settled, count = (max(1_000, int(size * scale)) for size in (FINISHED, SETTLED, JOBS))
    rounds = ROUNDS if scale >= 0.5 else 2
    ways = ("fresh", f"{finished:,} finished", f"after {settled:,} in a row")
    found: dict[str, list[float]] = {way: [] for way in ways}
    with handed.store("postgres") as full, handed.store("postgres") as used:
        _fill(full, finished)
        pace = _settle_in_a_row(used, settled)
        for turn in range(rounds):
            for way in ways if turn % 2 == 0 else reversed(ways):
                found[way].append(_rate(handed, {ways[1]: full, ways[2]: used}.get(way), count))
    ratios = {way: [rate / fresh for rate, fresh in zip(found[way], found[ways[0]], strict=True)] for way in ways}
    rows = [[way, statistics.median(found[way]), f"{statistics.median(ratios[way]):.2f}", _range(ratios[way])]
            for way in ways]  # fmt: skip
    plots = {
        "in-a-row": Plot(
            "Enqueue, claim and settle, in a row", "jobs settled so far", "jobs/s", [Series("all processes", pace)]
        ),
        "": Plot(
            "Draining what is old and what is new",
            "turn",
            "jobs/s",
            [Series(way, list(enumerate(found[way], 1))) for way in ways],
            ticks_x=tuple(range(1, rounds + 1)),
        ),
    }
    usual = statistics.median(rate for _, rate in pace)
    note = (
        f"{count:,} no-op jobs drained by one worker, {rounds} turns; the row was enqueued, claimed and settled by"
        f" {PROCESSES} processes at {usual:,.0f} jobs/s, and its last tenth ran at"
        f" {_tail(pace):.2f} of its first."
    )
    headings = ["database", "jobs/s", "to fresh", "from to"]
    return Curve("finished", "Draining beside what is over", headings, rows, plots, [note])


def _rate(handed: Databases, store: SqlStore | None, count: int) -> float:
    """Without a settling down: a table that was used is as it is."""
    if store is not None:
        return drain_rate(store, count, 1, settle=False)
    with handed.store("postgres") as fresh:
        return drain_rate(fresh, count, 1, settle=False)


def _fill(store: SqlStore, count: int) -> None:
    """The indexes are made afterwards, which is faster; then the tables are looked after as autovacuum would have, over
    the weeks in which so many jobs end."""
    with store.database.engine.connect() as connection:
        indexes = connection.exec_driver_sql(INDEXES).all()
        for name, _definition in indexes:
            connection.exec_driver_sql(f"DROP INDEX {name}")
        for first in range(1, count + 1, FILL):
            load_finished(store, min(FILL, count + 1 - first), first=first)
        connection.exec_driver_sql("SET maintenance_work_mem = '512MB'")
        for _name, definition in indexes:
            connection.execute(text(definition.replace(":", "\\:")))
        connection.exec_driver_sql("RESET maintenance_work_mem")
        for table in TABLES:
            connection.exec_driver_sql(f"VACUUM ANALYZE {table}")
        connection.exec_driver_sql("CHECKPOINT")


def _settle_in_a_row(store: SqlStore, count: int) -> list[tuple[float, float]]:
    """How many jobs a second, against how many there had been."""
    command = [sys.executable, "-m", "benchmarks.curves.raw", url_of(store), str(count // PROCESSES), str(BATCH)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    over = threading.Event()
    upkeep = threading.Thread(target=_roll_up, args=(store, over))
    upkeep.start()
    told = [process.communicate()[0] for process in running]
    over.set()
    upkeep.join()
    assert all(process.returncode == 0 for process in running)
    per_second: Counter[int] = Counter()
    for line in "".join(told).splitlines():
        at, count_then = line.split()
        per_second[int(float(at))] += int(count_then)
    seconds = sorted(per_second)[1:-1] or sorted(per_second)  # the first and the last are cut
    portion = max(1, len(seconds) // POINTS)
    points, total = [], 0
    for start in range(0, len(seconds), portion):
        among = seconds[start : start + portion]
        done = sum(per_second[second] for second in among)
        total += done
        points.append((float(total), done / len(among)))
    return points


def _roll_up(store: SqlStore, over: threading.Event) -> None:
    """Whose turn it is, and how long it then rests, is the store's business."""
    while not over.wait(1.0):
        store.roll_up("bench")


def _tail(pace: list[tuple[float, float]]) -> float:
    tenth = max(1, len(pace) // 10)
    first, last = pace[:tenth], pace[-tenth:]
    return statistics.mean(rate for _, rate in last) / statistics.mean(rate for _, rate in first)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
