"""What the statement of a real claim touches: it is caught on its way, whatever its parameters are, and explained."""

from __future__ import annotations

from typing import Any
from unittest import mock

from benchmarks.claim_cost import buffers
from benchmarks.curves.draining import QUEUE, TASK
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.database import CursorTransaction, Parameters
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.words import Statement


def claim_buffers(store: SqlStore, batch: int) -> int:
    """Of the statement that brought the jobs; explained in a transaction that is rolled back."""
    caught: list[tuple[str, dict[str, Any]]] = []
    run = CursorTransaction.run

    def catch(self: CursorTransaction, statement: Statement, parameters: Parameters | None = None) -> None:
        caught.append((statement.driver_sql(self.dialect), dict(parameters or {})))
        run(self, statement, parameters)

    with mock.patch.object(CursorTransaction, "run", catch):
        claimed = store.claim("bench", batch, [QUEUE], [TASK])
    store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])
    sql, parameters = caught[-1]
    with store.database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        with driver.transaction(force_rollback=True):
            explained = driver.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
            return buffers(explained.fetchone()[0][0])
