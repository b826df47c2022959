"""Whose turn a duty is."""

from __future__ import annotations

from holdfast.domain.names import check_name
from holdfast.domain.retention import Turn
from holdfast.stores import rows
from holdfast.stores.database import Database
from holdfast.stores.statements import duties as sql


def take_turn(database: Database, name: str, holder: str, period: float) -> bool:
    parameters = {"name": check_name(name, "name"), "holder": check_name(holder, "holder"), "period": float(period)}
    with database.statement() as transaction:
        return bool(transaction.rows(sql.TAKE, parameters))


def keep_turn(database: Database, name: str, holder: str) -> bool:
    with database.statement() as transaction:
        return bool(transaction.rows(sql.KEEP, {"name": name, "holder": holder}))


def turns(database: Database) -> list[Turn]:
    with database.reading() as transaction:
        found = transaction.rows(sql.TURNS)
    return [Turn(name, rows.moment(ticked_at), holder) for name, ticked_at, holder in found]
