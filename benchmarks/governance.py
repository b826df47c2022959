"""What limits on sources cost a claim: as many jobs a second as without any, or nearly.

The same jobs with no source, over ten sources and over a thousand, each with a generous rate and number at once; beside
them a closed source with a hundred thousand jobs that have waited longer than all others. And the same with sources
that nobody limited: what it costs that jobs have a source at all (two indexes more, and lanes that lie apart) is not
what limits cost. Every kind has a database of its own, and a claim of each is taken in turn. Only claims are timed;
what they bring is settled in between.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.sql_store import SqlStore

KINDS = ((0, False), (10, False), (10, True), (1_000, False), (1_000, True))  # how many sources, and whether limited
Kind = tuple[int, bool]
BATCHES = (20, 100)
ROUNDS = 100
WARM_UP = 5
CLOSED = 100_000


def run(databases: Databases, *, scale: float = 1.0) -> str:
    rounds = max(WARM_UP, int(ROUNDS * scale))
    rows: list[list[object]] = []
    for kind in databases.kinds:
        with ExitStack() as stack:
            stores = {each: stack.enter_context(databases.store(kind)) for each in KINDS}
            jobs = (rounds + WARM_UP) * sum(BATCHES) * 2
            for (count, limited), store in stores.items():
                fill(store, jobs, count, max(1, int(CLOSED * scale)) if limited else 0)
                settle_down(store)
            for batch in BATCHES:
                rows += _compared(kind, batch, _timed(stores, batch, rounds))
    headings = ["store", "batch", "sources", "jobs/s", "ms a claim", "times no sources", "times no limits"]
    return "### What limits cost a claim\n\n" + markdown(headings, rows)


def _timed(stores: dict[Kind, SqlStore], batch: int, rounds: int) -> dict[Kind, list[float]]:
    """Seconds of each claim."""
    seconds: dict[Kind, list[float]] = {each: [] for each in stores}
    for number in range(WARM_UP + rounds):
        for each, store in stores.items():
            began = time.perf_counter()
            claimed = store.claim("bench", batch, ["default"], ["noop"])
            took = time.perf_counter() - began
            assert len(claimed) == batch, f"{len(claimed)} of {batch} of {each}"
            if number >= WARM_UP:
                seconds[each].append(took)
            store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])
    return seconds


def _compared(kind: str, batch: int, seconds: dict[Kind, list[float]]) -> list[list[object]]:
    typical = {each: median(times) for each, times in seconds.items()}
    rows: list[list[object]] = []
    for (count, limited), took in typical.items():
        name = "none" if not count else f"{count:,}, limited" if limited else f"{count:,}, no limits"
        against = [f"{took / typical[other]:.2f}" for other in ((0, False), (count, False))]
        rows.append([kind, batch, name, batch / took, round(took * 1000, 2), *against])
    return rows


def fill(store: SqlStore, jobs: int, sources: int, closed: int) -> None:
    """Raw rows, spread over the sources in turn. Those of the closed source are the oldest; without any, nothing is
    limited."""
    is_postgres = store.database.dialect == "postgresql"
    if is_postgres:
        number, then = "generate_series(1, {count}) AS n", "now() - interval '1 hour' + n * interval '1 microsecond'"
        before = "now() - interval '2 hours'"
    else:
        number = (
            "(WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < {count}) SELECT n FROM up)"
        )
        moment = "strftime('%Y-%m-%dT%H:%M:%S', 'now', '-{hours} hours')"
        then = f"{moment.format(hours=1)} || '.' || substr('00000' || n, -6) || 'Z'"
        before = f"{moment.format(hours=2)} || '.000000Z'"
    source = f"'source-' || (n - n / {sources} * {sources})" if sources else "NULL"
    with store.database.engine.begin() as connection:
        if is_postgres:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        if closed:
            connection.exec_driver_sql(
                "INSERT INTO holdfast_sources (name, rate_limit_per_minute, burst, max_concurrent, bucket_level)"
                f" SELECT 'source-' || (n - 1), 6000000, 1000, 1000, 1000 FROM {number.format(count=sources)}"
            )
            connection.exec_driver_sql("INSERT INTO holdfast_sources (name, enabled) VALUES ('closed', false)")
            connection.exec_driver_sql(
                "INSERT INTO holdfast_jobs (task, source, run_after)"
                f" SELECT 'noop', 'closed', {before} FROM {number.format(count=closed)}"
            )
        connection.exec_driver_sql(
            "INSERT INTO holdfast_jobs (task, source, run_after)"
            f" SELECT 'noop', {source}, {then} FROM {number.format(count=jobs)}"
        )
