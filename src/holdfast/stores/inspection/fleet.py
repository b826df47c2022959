"""Facts that whoever watches a fleet wants to see all the time: cheap ones, whatever the number of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.inspection import duties, postgres
from holdfast.stores.inspection.postgres import TableHealth
from holdfast.stores.statements.words import POSTGRES, Statement

_NOW = Statement("inspection.now", lambda words: f"SELECT {words.now}")


@dataclass(frozen=True, slots=True)
class Facts:
    """`tables` is empty and `oldest_snapshot_seconds` None where there is no vacuum to wait for: on SQLite."""

    now: datetime  # by the store's clock
    duties: dict[str, float]  # seconds since each was last done
    tables: tuple[TableHealth, ...] = ()
    oldest_snapshot_seconds: float | None = None


def facts(database: Database) -> Facts:
    ticks = duties.ticks(database)
    with database.reading() as transaction:
        now = rows.moment(transaction.rows(_NOW)[0][0])
    assert now is not None
    if database.dialect != POSTGRES:
        return Facts(now, ticks)
    return Facts(now, ticks, tuple(postgres.tables(database)), postgres.oldest_snapshot(database))
