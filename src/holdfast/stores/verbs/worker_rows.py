"""Keep the row of a worker. It is for people: nothing in the engine reads it to decide anything.

Who has the database itself writes any row. Over HTTP, a row belongs to the credential that wrote it first."""

from __future__ import annotations

from dataclasses import asdict, replace

from holdfast.domain.names import check_name
from holdfast.domain.spec import check_json, encode_json
from holdfast.domain.views import WorkerRow, WorkerView
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import workers as sql

FORGOTTEN_AFTER_SECONDS = 86_400.0


def keep_worker(database: Database, row: WorkerRow) -> None:
    encoded = _encoded(row)
    with database.statement() as transaction:
        transaction.run(sql.KEEP, {"rows": encoded})


def keep_worker_of(database: Database, credential: str, row: WorkerRow) -> bool:
    encoded = _encoded(replace(row, detail={**row.detail, sql.CREDENTIAL: credential}))
    with database.statement() as transaction:
        return bool(transaction.rows(sql.KEEP_OWN, {"rows": encoded}))


def forget_workers(database: Database, age_seconds: float) -> int:
    with database.statement() as transaction:
        return len(transaction.rows(sql.FORGET, {"age": float(age_seconds)}))


def workers(database: Database) -> list[WorkerView]:
    with database.reading() as transaction:
        return [_view(row, database.dialect) for row in transaction.rows(sql.WORKERS)]


def _encoded(row: WorkerRow) -> str:
    check_name(row.id, "worker")
    values = asdict(row)
    check_json(values, f"row of worker {row.id}")
    return f"[{encode_json(values)}]"


def _view(row: Row, dialect: str) -> WorkerView:
    values = rows.decoded(sql.VIEWED, row, dialect)
    queues = values["queues"]
    detail = {name: value for name, value in (values["detail"] or {}).items() if name != sql.CREDENTIAL}
    return WorkerView(**{**values, "queues": None if queues is None else tuple(queues), "detail": detail})
