"""How large a job is on Postgres: rows and indexes of jobs and audit log, and write-ahead log, by stage of its life.

None of it depends on how fast the machine is. There is a checkpoint before each stage: so the images of whole pages
that Postgres logs after one are in it as if a checkpoint came between any two stages of a job's life.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Report, Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.stores.sql_store import SqlStore

WORKER = "host-1.internal-4711-abcdef"
BATCH = 100


def enqueue(store: SqlStore, count: int) -> None:
    for first in range(0, count, 500):
        store.enqueue_many(
            [
                NewJob(task="send", payload={"to": f"user-{n:07d}@example.com", "template": "welcome", "locale": "en"})
                for n in range(first, min(first + 500, count))
            ]
        )


def run_all(store: SqlStore) -> None:
    while claimed := store.claim(WORKER, BATCH):
        store.settle(
            [
                Report(job.job_id, job.attempt, job.lease_token, Succeeded({"sent": True}), worker=WORKER)
                for job in claimed
            ]
        )


def prune(store: SqlStore) -> None:
    while store.prune(Group(Kept.JOBS, "default", State.SUCCEEDED, 0.0), 500).ids:
        pass


def retire(store: SqlStore) -> None:
    while store.retire(Group(Kept.HISTORIES, "default", State.SUCCEEDED, 0.0), 500).jobs:
        pass


def _ask(store: SqlStore, question: str) -> int:
    with store.database.engine.connect() as connection:
        return int(connection.exec_driver_sql(question).scalar() or 0)


def _position(store: SqlStore) -> int:
    return _ask(store, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")


def _packed(store: SqlStore) -> list[int]:
    """Rows and indexes of jobs and of the audit log, with nothing dead between them."""
    with store.database.engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        for table in ("holdfast_jobs", "holdfast_events"):
            connection.exec_driver_sql(f"VACUUM FULL {table}")
    sizes = (f"{size}('{table}')" for table in ("holdfast_jobs", "holdfast_events") for size in SIZES)
    return [_ask(store, f"SELECT {size}") for size in sizes]


SIZES = ("pg_table_size", "pg_indexes_size")


def run(databases: Databases, *, scale: float = 1.0) -> str:
    count = max(500, round(5000 * scale))
    rows: list[list[object]] = []
    with databases.store("postgres") as store:
        stages: tuple[tuple[str, Callable[[], None]], ...] = (
            ("enqueued, 500 in a call", lambda: enqueue(store, count)),
            ("claimed and succeeded, 100 in a call", lambda: run_all(store)),
            ("pruned", lambda: prune(store)),
            ("history retired, row by row", lambda: retire(store)),
        )
        for name, stage in stages:
            settle_down(store)
            before = _position(store)
            stage()
            logged = _position(store) - before
            events = _ask(store, "SELECT count(*) FROM holdfast_events")
            packed = [size / count for size in _packed(store)]
            rows.append([name, logged / count, events / count, *packed])
    headings = ("bytes a job", "WAL", "audit rows", "job: row", "its indexes", "audit: rows", "their indexes")
    return f"Sizes, {count:,} jobs\n\n" + markdown(headings, rows)
