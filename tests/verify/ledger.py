"""A Holdfast database driven by plain SQL: what an engine, an operator and a vandal would type."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, text

from holdfast.stores import guards
from holdfast.stores.guards import postgres as postgres_guards
from holdfast.stores.schema import metadata

FAR = "2099-01-01T00:00:00.000000Z"

_NOW = {
    "postgresql": "greatest(holdfast_now(), updated_at)",
    "sqlite": "max(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z', updated_at)",
}
_CHECKS = ("holdfast_jobs_running_has_lease", "holdfast_jobs_state", "holdfast_jobs_finished")


def job_id(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012d}"


def create_tables(engine: Engine) -> None:
    dialect = engine.dialect.name
    with engine.begin() as connection:
        for statement in postgres_guards.FOUNDATION if dialect == "postgresql" else ():
            run_as_it_is(connection, statement)
        metadata.create_all(connection)
        for statement in guards.statements(dialect):
            run_as_it_is(connection, statement)


def run_as_it_is(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


@contextmanager
def guards_off(engine: Engine) -> Iterator[Connection]:
    """A connection on which the database accepts anything."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET session_replication_role = replica")
            for check in _CHECKS:
                connection.exec_driver_sql(f"ALTER TABLE holdfast_jobs DROP CONSTRAINT IF EXISTS {check}")
        else:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").all()
            for [trigger] in triggers:
                connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        yield connection
        connection.commit()
        connection.invalidate()  # its settings must not come back from the pool


class Ledger:
    """Transitions of jobs by number, each in the transaction of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._now = _NOW[connection.dialect.name]

    def enqueue(self, number: int) -> None:
        self._run("INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'count')", number)

    def claim(self, number: int) -> None:
        self.move(
            number, "claimed", "running", attempt="attempt + 1", lease_owner="'worker'", lease_expires_at=f"'{FAR}'"
        )

    def request_cancel(self, number: int) -> None:
        self.move(number, "cancel_requested", "running", cancel_requested_at=f"'{FAR}'")

    def end(self, number: int, event: str, state: str, **changes: str) -> None:
        """An outcome: the lease ends with it."""
        no_lease = {"lease_owner": "NULL", "lease_token": "NULL", "lease_expires_at": "NULL"}
        finished = {} if state in ("pending", "retryable") else {"finished_at": self._now}
        self.move(number, event, state, **no_lease, **finished, **changes)

    def retry(self, number: int) -> None:
        self.end(number, "retry_scheduled", "retryable", failures="failures + 1")

    def crash(self, number: int) -> None:
        self.end(number, "crashed", "retryable", crashes="crashes + 1")

    def requeue(self, number: int) -> None:
        reset = {"failures": "0", "crashes": "0", "cancel_requested_at": "NULL", "finished_at": "NULL"}
        self.move(number, "requeued", "pending", **reset)

    def prune(self, number: int) -> None:
        self._run("DELETE FROM holdfast_jobs WHERE id = :id", number)

    def retire(self, number: int) -> None:
        self._run("INSERT INTO holdfast_retired_histories VALUES (:id)", number)

    def move(self, number: int, event: str, state: str, **changes: str) -> None:
        """A transition as the engine writes it: everything about it is named."""
        token = {"lease_token": "'lease-' || (attempt + 1)"} if event == "claimed" else {}
        columns = {"transition_detail": "NULL", **token, **changes}
        assignments = ", ".join(f"{name} = {value}" for name, value in columns.items())
        self._run(
            f"UPDATE holdfast_jobs SET seq = seq + 1, transition = '{event}', state = '{state}',"
            f" updated_at = {self._now}, {assignments} WHERE id = :id",
            number,
        )

    def type_by_hand(self, number: int, assignments: str) -> None:
        """An UPDATE as an operator types it; the triggers make a transition of it."""
        self._run(f"UPDATE holdfast_jobs SET {assignments} WHERE id = :id", number)

    def _run(self, statement: str, number: int) -> None:
        self._connection.execute(text(statement), {"id": job_id(number)})


CLAIM_BY_HAND = f"state = 'running', lease_token = 'typed', lease_expires_at = '{FAR}'"

# The jobs of a healthy database, by what became of them.
PENDING, REPLACED, RUNNING, CANCELLING, RETRYABLE, CRASHED, LEASE_LOST, RELEASED = range(1, 9)
SUCCEEDED, FAILED, DEAD, FAILED_BY_HAND, CRASHED_BY_HAND, CANCELLED, CANCELLED_RUNNING = range(9, 16)
REQUEUED, SECOND_LIFE, PRUNED, PRUNED_LATER, RETIRED, BY_HAND = range(16, 22)
ALL = range(1, 22)


def write_healthy(connection: Connection) -> None:
    """Jobs in every state, with every event on record, by the engine's statements and by hand."""
    ledger = Ledger(connection)
    for number in ALL:
        ledger.enqueue(number)
    _write_active(ledger)
    _write_ended(ledger)
    _write_requeued_and_pruned(ledger)
    _write_by_hand(ledger)


def _write_active(ledger: Ledger) -> None:
    ledger.move(REPLACED, "replaced", "pending", payload="'{}'")
    ledger.claim(RUNNING)
    ledger.retry(RUNNING)
    ledger.claim(RUNNING)
    ledger.claim(CANCELLING)
    ledger.request_cancel(CANCELLING)
    ledger.claim(RETRYABLE)
    ledger.retry(RETRYABLE)
    ledger.claim(CRASHED)
    ledger.crash(CRASHED)
    ledger.claim(LEASE_LOST)
    ledger.end(LEASE_LOST, "lease_lost", "pending", crashes="crashes + 1")
    ledger.claim(RELEASED)
    ledger.end(RELEASED, "released", "pending")
    ledger.claim(RELEASED)
    ledger.end(RELEASED, "snoozed", "pending")


def _write_ended(ledger: Ledger) -> None:
    for number in (SUCCEEDED, FAILED, DEAD):
        ledger.claim(number)
        ledger.retry(number)
        ledger.claim(number)
        ledger.crash(number)
        ledger.claim(number)
    ledger.end(SUCCEEDED, "succeeded", "succeeded")
    ledger.end(FAILED, "failed", "failed", failures="failures + 1", transition_detail="""'{"reason": "permanent"}'""")
    ledger.end(DEAD, "failed", "failed", crashes="crashes + 1", transition_detail="""'{"reason": "worker_lost"}'""")
    ledger.end(CANCELLED, "cancelled", "cancelled")
    ledger.claim(CANCELLED_RUNNING)
    ledger.request_cancel(CANCELLED_RUNNING)
    ledger.end(CANCELLED_RUNNING, "cancelled", "cancelled")


def _write_requeued_and_pruned(ledger: Ledger) -> None:
    for number in (REQUEUED, SECOND_LIFE, PRUNED_LATER):
        ledger.claim(number)
        ledger.end(
            number, "failed", "failed", failures="failures + 1", transition_detail="""'{"reason": "permanent"}'"""
        )
        ledger.requeue(number)
    ledger.claim(SECOND_LIFE)
    ledger.end(SECOND_LIFE, "succeeded", "succeeded")
    for number in (PRUNED, PRUNED_LATER, RETIRED):
        ledger.end(number, "cancelled", "cancelled")
        ledger.prune(number)
    ledger.retire(RETIRED)


def _write_by_hand(ledger: Ledger) -> None:
    for number in (FAILED_BY_HAND, CRASHED_BY_HAND, BY_HAND):
        ledger.type_by_hand(number, CLAIM_BY_HAND)
    ledger.type_by_hand(FAILED_BY_HAND, "state = 'failed'")
    ledger.type_by_hand(CRASHED_BY_HAND, "state = 'failed', crashes = crashes + 1")
    ledger.type_by_hand(BY_HAND, f"cancel_requested_at = '{FAR}'")
    for state in ("retryable", "cancelled", "pending"):
        ledger.type_by_hand(BY_HAND, f"state = '{state}'")
    ledger.type_by_hand(BY_HAND, CLAIM_BY_HAND)
    ledger.type_by_hand(BY_HAND, "heartbeat_at = updated_at, progress = '7'")


def count(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        found: Any = connection.scalar(text(f"SELECT count(*) FROM {table}"))
    return int(found)
