"""Facts about what keeps the ledger moving; the same on both dialects, by the store's clock."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.stores.database import Database
from holdfast.stores.statements.words import Statement, Words


def _age(words: Words, column: str) -> str:
    if words.postgres:
        return f"CAST(extract(epoch FROM holdfast_now() - {column}) AS float8)"
    return f"(julianday(:now) - julianday({column})) * 86400.0"


def _duties(words: Words) -> str:
    return f"SELECT name, {_age(words, 'ticked_at')} FROM holdfast_duties WHERE ticked_at IS NOT NULL ORDER BY name"


def _workers(words: Words) -> str:
    return f"SELECT id, host, {_age(words, 'beat_at')} FROM holdfast_workers WHERE stopped_at IS NULL ORDER BY id"


def _schedules(words: Words) -> str:
    return f"""
        SELECT s.name, s.task, {_age(words, "s.next_at")}, t.name IS NOT NULL
        FROM holdfast_schedules s LEFT JOIN holdfast_tasks t ON t.name = s.task
        WHERE s.paused_at IS NULL ORDER BY s.name"""


_DUTIES = Statement("inspection.duties", _duties)
_WORKERS = Statement("inspection.workers", _workers)
_SCHEDULES = Statement("inspection.schedules", _schedules)


@dataclass(frozen=True, slots=True)
class LiveWorker:
    id: str
    host: str
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    name: str
    task: str
    late_seconds: float | None  # negative: its time is yet to come; None: never again
    task_is_known: bool


def ticks(database: Database) -> dict[str, float]:
    """How many seconds ago each duty was last done."""
    with database.reading() as transaction:
        return {name: float(age) for name, age in transaction.rows(_DUTIES)}


def workers(database: Database) -> list[LiveWorker]:
    """Those that have not said goodbye."""
    with database.reading() as transaction:
        return [LiveWorker(*row) for row in transaction.rows(_WORKERS)]


def schedules(database: Database) -> list[ScheduleFacts]:
    """Those that are not paused."""
    with database.reading() as transaction:
        return [ScheduleFacts(row[0], row[1], row[2], bool(row[3])) for row in transaction.rows(_SCHEDULES)]
