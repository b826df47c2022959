"""What a claim touches, against everything that must not make it slower (Postgres).

Buffers are counted by EXPLAIN (ANALYZE, BUFFERS) of the real statement in a transaction that is rolled back.
"""

from __future__ import annotations

import json
import os
from typing import Any

from benchmarks.databases import Databases
from benchmarks.tables import markdown
from holdfast.domain.digests import binding
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.claim import CLAIM

BATCHES = (1, 10, 100)


def fill(store: SqlStore, count: int, **columns: str) -> None:
    """Raw rows, as an operator would insert them: the triggers give each its `enqueued` event."""
    named = {"task": "'noop'", **columns}
    names, values = ", ".join(named), ", ".join(named.values())
    _execute(store, f"INSERT INTO holdfast_jobs ({names}) SELECT {values} FROM generate_series(1, {count})")


def fill_finished(store: SqlStore, count: int) -> None:
    _execute(
        store,
        "BEGIN",
        "SET LOCAL session_replication_role = replica",
        "INSERT INTO holdfast_jobs (task, state, seq, transition, attempt, finished_at) "
        f"SELECT 'noop', 'succeeded', 3, 'succeeded', 1, now() FROM generate_series(1, {count})",
        "COMMIT",
    )


def analyze(store: SqlStore) -> None:
    _execute(store, "VACUUM ANALYZE holdfast_jobs")


def _execute(store: SqlStore, *statements: str) -> None:
    with store.database.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def explain(store: SqlStore, batch: int) -> dict[str, Any]:
    parameters = {
        "worker": "bench",
        "secret": os.urandom(32),
        "binding": binding(""),
        "limit": batch,
        "window": batch + batch // 2 + 16,
        "tasks": json.dumps(["noop"]),
        "queues": json.dumps(["default"]),
    }
    sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + CLAIM.driver_sql("postgresql")
    with store.database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        with driver.transaction(force_rollback=True):
            plan: dict[str, Any] = driver.execute(sql, parameters).fetchone()[0][0]
            return plan


def buffers(plan: dict[str, Any]) -> int:
    return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])


def remove(store: SqlStore, where: str) -> None:
    """Take a kind of job away again, so that each is measured by itself."""
    _execute(
        store,
        "BEGIN",
        "SET LOCAL session_replication_role = replica",
        f"DELETE FROM holdfast_jobs WHERE {where}",
        "COMMIT",
    )


def run(databases: Databases, *, scale: float = 1.0) -> str:
    rows: list[list[object]] = []

    def note(store: SqlStore, label: str) -> None:
        analyze(store)
        plans = [explain(store, batch) for batch in BATCHES]
        rows.append([label, *(buffers(plan) for plan in plans), *(plan["Execution Time"] for plan in plans)])

    def sized(count: int) -> int:
        return max(1, int(count * scale))

    with databases.store("postgres") as store:
        fill(store, sized(1_000))
        note(store, f"{sized(1_000):,} due")
        fill(store, sized(99_000))
        note(store, f"{sized(100_000):,} due")
        fill(store, sized(900_000))
        due = f"{sized(1_000_000):,} due"
        note(store, due)
        fill(store, sized(500_000), priority="100", run_after="now() + interval '7 days'")
        note(store, f"{due}, {sized(500_000):,} more at top priority for next week")
        remove(store, "priority = 100")
        _execute(store, "INSERT INTO holdfast_sources (name, enabled) VALUES ('closed', false)")
        fill(store, sized(100_000), source="'closed'", priority="50")
        note(store, f"{due}, {sized(100_000):,} more of a closed source")
        remove(store, "priority = 50")
        fill(store, sized(100_000), task="'unknown'", priority="50")
        note(store, f"{due}, {sized(100_000):,} more of an unknown task")
        remove(store, "priority = 50")
        fill_finished(store, sized(1_000_000))
        note(store, f"{due}, {sized(1_000_000):,} finished")
    headings = ["jobs in the table", *(f"buffers, batch {b}" for b in BATCHES), *(f"ms, batch {b}" for b in BATCHES)]
    spread = [_spread([int(str(row[column])) for row in rows]) for column in range(1, 1 + len(BATCHES))]
    rows.append(["largest / smallest", *spread, *[""] * len(BATCHES)])
    return "### What a claim touches (Postgres)\n\n" + markdown(headings, rows)


def _spread(values: list[int]) -> str:
    return f"{max(values) / min(values):.2f}"
