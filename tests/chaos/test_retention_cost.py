"""A batch of retention reads its own rows and no others, however many there are and whatever the planner knows of them.

Counted by Postgres for the very transaction: rows that were read through an index, and from end to end.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Group, Kept
from holdfast.stores.database import CursorTransaction
from holdfast.stores.postgres import PostgresDatabase
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import query
from tests.worker.finished import load_finished

MANY = 4_000
BATCH = 10
READ = """
    SELECT coalesce(sum(seq_tup_read) + sum(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables
    WHERE relname IN ('holdfast_jobs', 'holdfast_events', 'holdfast_logs', 'holdfast_artifacts', 'holdfast_refusals')"""
JOBS = Group(Kept.JOBS, "old", State.SUCCEEDED, 86_400.0)
HISTORIES = Group(Kept.HISTORIES, "old", State.SUCCEEDED, 0.0)


class Counting:
    """How many rows of the large tables each transaction of a store has read."""

    def __init__(self, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        inner = database.transaction

        @contextmanager
        def counted() -> Iterator[CursorTransaction]:
            with inner() as transaction:
                [before] = transaction.cursor.execute(READ).fetchone()
                yield transaction
                [after] = transaction.cursor.execute(READ).fetchone()
                self.read.append(int(after - before))

        for name in ("transaction", "reading", "statement"):
            monkeypatch.setattr(database, name, counted)

    def most(self) -> int:
        most, self.read = max(self.read), []
        return most


def test_a_batch_reads_its_own_rows_and_no_others(
    postgres_store: SqlStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("holdfast_jobs", "holdfast_events"):
        query(postgres_url, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    load_finished(postgres_store, MANY)
    assert isinstance(postgres_store.database, PostgresDatabase)
    counting = Counting(postgres_store.database, monkeypatch)
    for known in (False, True):
        assert postgres_store.retention_due(Kept.JOBS) != []
        assert counting.most() < 10
        for _ in range(8):  # a plan that is kept is made by then
            assert len(postgres_store.prune(JOBS, BATCH).ids) == BATCH
        assert counting.most() <= 4 * BATCH
        assert postgres_store.retention_due(Kept.HISTORIES) == []
        assert counting.most() < 10
        for _ in range(8):
            assert postgres_store.retire(HISTORIES, BATCH).jobs == BATCH
        assert counting.most() <= 10 * BATCH
        if not known:
            query(postgres_url, "ANALYZE")
