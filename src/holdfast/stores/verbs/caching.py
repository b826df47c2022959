"""The response cache in the store's tables."""

from __future__ import annotations

from typing import Any

from holdfast.domain.caching import check_place, checked_batch, checked_ttl, checked_value
from holdfast.domain.names import check_name
from holdfast.domain.sources import Cached
from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.statements import cache as sql

CLEARED_AT_ONCE = 1_000


def get(database: Database, source: str, key: str) -> Cached | None:
    check_place(source, key)
    with database.reading() as transaction:
        found = transaction.rows(sql.GET, {"source": source, "key": key})
    return Cached(rows.parsed(found[0][0], database.dialect)) if found else None


def put(database: Database, source: str, key: str, value: Any, ttl_seconds: float) -> None:
    check_place(source, key)
    parameters = {"source": source, "key": key, "value": checked_value(value), "ttl": checked_ttl(ttl_seconds)}
    with database.statement() as transaction:
        transaction.run(sql.PUT, parameters)


def forget(database: Database, limit: int) -> int:
    with database.statement() as transaction:
        return len(transaction.rows(sql.FORGET, {"limit": checked_batch(limit)}))


def clear(database: Database, source: str, key: str | None) -> int:
    if key is not None:
        check_place(source, key)
    given = {"source": check_name(source, "source"), **({} if key is None else {"key": key})}
    cleared = 0
    while True:
        with database.statement() as transaction:
            batch = len(transaction.rows(sql.clear(key is not None), {**given, "limit": CLEARED_AT_ONCE}))
        cleared += batch
        if batch == 0:
            return cleared
