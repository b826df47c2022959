"""The arithmetic of docs/scale.md: its derived tables from the figures and assumptions that stand in its first two.

`make docs` writes them, and a test compares: to refresh the page, change a figure there and run it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta

DAY_SECONDS = timedelta(days=1).total_seconds()
VOLUMES = {"1 M": 1e6, "10 M": 1e7, "100 M": 1e8, "1 B": 1e9}
SPANS = {"a month": 30.0, "a week": 7.0, "a day": 1.0, "six hours": 0.25}
LARGEST_PARTITION_GB = 100
BRIEFLY = (1.0, 7.0, 7.0)

Figures = dict[str, float]


def figures(page: str) -> Figures:
    """Every row of the page that begins with a name in backquotes and a number."""
    found = re.findall(r"^\| `(\w+)` \| ([\d,.]+)", page, re.MULTILINE)
    return {name: float(number.replace(",", "")) for name, number in found}


def rendered(page: str) -> str:
    """The page with its derived tables made anew."""
    given = figures(page)
    for name, table in TABLES.items():
        place = re.search(rf"<!-- reckoned: {name} -->\n(.*?)\n\n", page, re.DOTALL)
        assert place is not None, f"docs/scale.md has no place for the table {name}"
        page = page[: place.start(1)] + table(given) + page[place.end(1) :]
    return page


def sustained(given: Figures) -> float:
    """Jobs a second of the measured machine if each is enqueued, run and pruned on it, one thing after the other."""
    return 1 / (1 / given["drain"] + 1 / given["bulk"] + 1 / given["prune"])


def _life(given: Figures) -> str:
    parts = [1e6 / given[name] for name in ("bulk", "drain", "prune")]
    rate = sustained(given)
    planned = rate * given["use"]
    cells = [*parts, sum(parts), rate, planned, _a_day(planned, given) / 1e6, 1e6 / _database_cpu(given)]
    headings = ("enqueued in bulk, µs", "run, µs", "pruned, µs", "whole life, µs", "jobs/s", "planned, jobs/s")
    return _table((*headings, "million a day", "a core of Postgres alone, jobs/s"), [[*map(_round, cells)]])


def _database_cpu(given: Figures) -> float:
    """Microseconds a job of the database itself. What a run of retention takes is taken to be all its own."""
    return given["server_cpu"] + given["copy_cpu"] + 1e6 / given["prune"]


def _a_day(rate: float, given: Figures) -> float:
    """How many a day have a peak of this rate."""
    return rate / given["peak"] * DAY_SECONDS


def _load(given: Figures) -> str:
    rows = []
    for name, volume in VOLUMES.items():
        average = volume / DAY_SECONDS
        peak = average * given["peak"]
        cores = 2 * peak / (sustained(given) * given["use"])
        wal = peak * given["wal"] / 1e6
        rows.append([name, _round(average), _round(peak), _up(cores), _round(wal), _servers(peak, given)])
    return _table(
        (
            "jobs a day",
            "average, jobs/s",
            "peak, jobs/s",
            "cores, Postgres and workers",
            "WAL at the peak, MB/s",
            "servers",
        ),
        rows,
    )


def _servers(peak: float, given: Figures) -> int:
    """Enough for the work of the database itself, and for its write-ahead log."""
    cpu = peak * _database_cpu(given) / 1e6 / (given["cores"] * given["use"])
    wal = peak * given["wal"] / 1e6 / given["wal_a_server"]
    return max(1, math.ceil(cpu), math.ceil(wal))


def _disk(given: Figures) -> str:
    rows = []
    for name, volume in VOLUMES.items():
        audit = volume * given["audit_bytes"] / 1e9
        job = volume * given["job_bytes"] / 1e9
        kept = [
            _gigabytes(job * succeeded + audit * (failed + histories)) for succeeded, failed, histories in _kept(given)
        ]
        rows.append(
            [
                name,
                _count(volume * given["audit_rows"]),
                _gigabytes(audit),
                _gigabytes(volume * given["wal"] / 1e9),
                *kept,
            ]
        )
    return _table(
        ("jobs a day", "audit rows a day", "audit a day", "WAL a day", "kept as by default", "kept briefly"),
        rows,
    )


def _partitions(given: Figures) -> str:
    rows = []
    for name, volume in VOLUMES.items():
        servers = _servers(volume / DAY_SECONDS * given["peak"], given)
        daily = volume * given["audit_bytes"] / 1e9 / servers
        span, days = next((span, days) for span, days in SPANS.items() if daily * days <= LARGEST_PARTITION_GB)
        alive = [math.ceil((failed + histories) / days) + 4 + 1 for _, failed, histories in _kept(given)]
        rows.append([name, servers, span, _gigabytes(daily * days), *alive])
    return _table(
        (
            "jobs a day",
            "servers",
            "a partition for",
            "its size",
            "partitions, kept as by default",
            "kept briefly",
        ),
        rows,
    )


def _kept(given: Figures) -> tuple[tuple[float, float, float], ...]:
    """Days for which jobs that succeeded, jobs that failed, and histories are kept: by default, and briefly. A
    partition stays for as long as any job of its range does, and one that failed is always among them."""
    return (given["jobs_kept"], given["failed_kept"], given["histories_kept"]), BRIEFLY


def _fleet(given: Figures) -> str:
    rows = []
    for name, volume in VOLUMES.items():
        peak = volume / DAY_SECONDS * given["peak"]
        slots = math.ceil(peak * given["job_seconds"])
        workers = max(math.ceil(slots / given["slots"]), math.ceil(peak / (given["drain"] * given["use"])))
        servers = _servers(peak, given)
        direct = math.ceil(workers / servers) * given["connections"]
        rows.append([name, slots, workers, servers, _up(direct)])
    return _table(("jobs a day", "slots busy at the peak", "workers", "servers", "connections a server, at most"), rows)


TABLES = {"life": _life, "load": _load, "disk": _disk, "partitions": _partitions, "fleet": _fleet}


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += [
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines)


def _round(value: float) -> str:
    """To two figures that count, or three where it begins with a one."""
    digits = 0 if value == 0 else math.floor(math.log10(value))
    shown = 3 if value / 10**digits < 2 else 2
    return f"{round(value, shown - 1 - digits):,.0f}" if digits >= shown - 1 else f"{value:.{shown - 1 - digits}f}"


def _up(value: float) -> int:
    return math.ceil(value)


def _count(value: float) -> str:
    return f"{value / 1e9:g} B" if value >= 1e9 else f"{value / 1e6:g} M"


def _gigabytes(value: float) -> str:
    return f"{_round(value / 1000)} TB" if value >= 1000 else f"{_round(value)} GB"
