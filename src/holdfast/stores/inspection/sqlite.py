"""Facts about an SQLite file, asked on a connection that cannot write."""

from __future__ import annotations

import sqlite3
import time
from datetime import datetime

from holdfast.stores import rows
from holdfast.stores.database import Database

# Newest by id, which begins with the time, and the two small tables that workers keep writing: no scan of the jobs.
_NEWEST = """
    SELECT max(moment) FROM (
      SELECT max(created_at, updated_at) AS moment FROM (
        SELECT created_at, updated_at FROM holdfast_jobs ORDER BY id DESC LIMIT 1)
      UNION ALL SELECT max(beat_at) FROM holdfast_workers
      UNION ALL SELECT max(ticked_at) FROM holdfast_duties)"""

_COLUMNS = """
    SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name LIKE 'holdfast%'"""
_STEPS = 10_000  # of SQLite's own, from one look at the clock to the next


def journal_mode(database: Database) -> str:
    with database.reading() as transaction:
        mode: str = transaction.cursor.execute("PRAGMA journal_mode").fetchone()[0]
    return mode


def columns(database: Database) -> dict[str, set[str]]:
    """Of those of our tables that are there."""
    with database.reading() as transaction:
        rows = transaction.cursor.execute(_COLUMNS).fetchall()
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def indexes(database: Database) -> set[str]:
    with database.reading() as transaction:
        found = transaction.cursor.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    return {name for [name] in found}


def newest_stamp(database: Database) -> datetime | None:
    """The latest time that somebody wrote; None in an empty file."""
    with database.reading() as transaction:
        found = transaction.cursor.execute(_NEWEST).fetchone()[0]
    return rows.moment(found)


def faults(database: Database, within: float) -> list[str] | None:
    """The first faults of the file's structure; None when there was no time to look at all of it."""
    deadline = time.monotonic() + within
    with database.reading() as transaction:
        transaction.cursor.connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            said = [text for [text] in transaction.cursor.execute("PRAGMA quick_check(10)")]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                return None
            return [str(error)]
    return [] if said == ["ok"] else [line for text in said for line in text.splitlines()]
