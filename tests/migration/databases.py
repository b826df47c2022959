"""Engines like those of the stores, and everything that a database contains, for comparison."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from holdfast.stores import guards

# Alembic's own table; the schema does not declare it.
VERSION_TABLE = "holdfast_schema_version"
RECORD = "SELECT value FROM holdfast_meta WHERE key = 'installed'"

Contents = list[tuple[object, ...]]

POSTGRES_CONTENTS = (
    """
    SELECT 'column', attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull,
           pg_get_expr(adbin, adrelid)
    FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
    """,
    """
    SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    """
    SELECT 'relation', relname, relkind, relpersistence, array(SELECT unnest(reloptions) ORDER BY 1)
    FROM pg_class WHERE relnamespace = 'public'::regnamespace
    """,
    """
    SELECT 'function', proname, pg_get_functiondef(oid)
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """,
    """
    SELECT 'trigger', tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid)
    FROM pg_trigger WHERE NOT tgisinternal
    """,
    "SELECT 'view', viewname, definition FROM pg_views WHERE schemaname = 'public'",
)


def open_engine(url: str) -> Engine:
    """Both in autocommit: what wants a transaction has to begin it."""
    if url.startswith("postgresql"):
        return create_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    engine = create_engine(url, connect_args={"isolation_level": None})

    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", prepare)
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="READ COMMITTED")
        with connection.begin():
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


def execute(engine: Engine, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in autocommit; all the rows that they return."""
    with engine.connect() as connection:
        results = [connection.exec_driver_sql(statement) for statement in statements]
        return [tuple(row) for result in results if result.returns_rows for row in result]


def renumber_guards(engine: Engine, number: int) -> None:
    """Record that guards of this number were installed."""
    [(text,)] = execute(engine, RECORD)
    record = json.dumps({**json.loads(str(text)), "guards": number, "fingerprint": "another"})
    execute(engine, f"UPDATE holdfast_meta SET value = '{record}' WHERE key = 'installed'")


def outdate_guards(engine: Engine) -> None:
    renumber_guards(engine, guards.NUMBER - 1)


def drop_a_trigger(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        execute(engine, "DROP TRIGGER holdfast_update ON holdfast_events")
    else:
        execute(engine, "DROP TRIGGER holdfast_events_update")


def contents(engine: Engine) -> Contents:
    """Every table, index, constraint, trigger, function and view, in an order of no meaning."""
    found = _postgres_contents(engine) if engine.dialect.name == "postgresql" else _sqlite_contents(engine)
    return sorted((row for row in found if not _is_versions(row)), key=repr)


def _is_versions(row: tuple[object, ...]) -> bool:
    return any(str(name).startswith(VERSION_TABLE) for name in row[1:3])


def _postgres_contents(engine: Engine) -> Contents:
    return execute(engine, *POSTGRES_CONTENTS)


def _sqlite_contents(engine: Engine) -> Contents:
    rows = execute(engine, "SELECT type, tbl_name, name, sql FROM sqlite_master")
    return [(kind, table, name, _normalised(str(kind), str(sql))) for kind, table, name, sql in rows]


def _normalised(kind: str, sql: str) -> object:
    words = " ".join(sql.replace('"', "").split())
    return _definitions(words) if kind == "table" else words


def _definitions(create_table: str) -> tuple[str, ...]:
    """The parts of a CREATE TABLE, sorted: a column that was added later stands at another place."""
    head, parenthesis, body = create_table.partition("(")
    parts, depth = [""], 0
    for character in body:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    # What follows the last parenthesis (WITHOUT ROWID) belongs to the table, not to its last column.
    parts[-1], closing, options = parts[-1].rpartition(")")
    return (head.strip(), parenthesis, *sorted(part.strip() for part in parts), closing + options)
