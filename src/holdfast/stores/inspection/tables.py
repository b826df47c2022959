"""Facts about our tables and guards; the same on both dialects."""

from __future__ import annotations

from holdfast.stores.database import Database
from holdfast.stores.guards import installed
from holdfast.stores.guards.installed import Guard
from holdfast.stores.inspection import postgres, sqlite
from holdfast.stores.schema import metadata
from holdfast.stores.statements.words import POSTGRES


def columns(database: Database) -> dict[str, set[str]]:
    """Of those of our tables that are there."""
    found = postgres.columns(database) if database.dialect == POSTGRES else sqlite.columns(database)
    return {name: columns for name, columns in found.items() if name in metadata.tables}


def missing(found: dict[str, set[str]]) -> list[str]:
    """The tables, and the columns of the others, that should be there and are not."""
    parts = []
    for name, table in sorted(metadata.tables.items()):
        if name not in found:
            parts.append(name)
        else:
            parts += [f"{name}.{column.name}" for column in table.columns if column.name not in found[name]]
    return parts


def guards(database: Database) -> dict[Guard, bool]:
    """Those that are there, and whether they fire."""
    with database.reading() as transaction:
        found = transaction.cursor.execute(installed.QUESTION[database.dialect]).fetchall()
    return {Guard(table, name): bool(fires) for table, name, fires in found}
