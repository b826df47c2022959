"""The store: does it answer, is it the right one, may we use it."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.stores.inspection import postgres
from holdfast.stores.sqlite import OLDEST_VERSION

OLDEST_POSTGRES = 120000
_ROUND_TRIPS = 5
_CANNOT_OPEN = ("unable to open", "cannot be used", "readonly", "disk I/O", "too old")


def store(patient: Patient) -> Iterator[Remark]:
    if patient.unusable is not None:
        yield problem(f"the store cannot be used: {patient.unusable}", _way_out(patient))
    elif patient.missing_file is not None:
        yield info(
            patient.missing_file, "Nothing is wrong: the first enqueue, worker or `holdfast db upgrade` makes it."
        )
    elif patient.is_postgres:
        yield from _postgres(patient)
    else:
        yield ok(f"SQLite {sqlite3.sqlite_version} reads {patient.path}")


def _way_out(patient: Patient) -> str:
    said = re.sub(r"\S+://\S+", "", patient.unusable or "")  # what was said, without a URL that was repeated
    return _way_out_of_a_file(said) if patient.url.startswith("sqlite") else _way_out_of_a_server(said)


def _way_out_of_a_file(said: str) -> str:
    if "in memory" in said:
        return "Set DATABASE_URL, or --database, to a file or to a server."
    if "locked" in said:
        return "Another process holds the file: find it (fuser -v the file), and let it end."
    if any(word in said for word in _CANNOT_OPEN):
        return "Name a file that this user may read and write, in a folder that it may write to as well."
    return "The file is not an SQLite database or is damaged: restore it from a backup, or name another."


def _way_out_of_a_server(said: str) -> str:
    if "too many" in said or "remaining connection slots" in said or "no more connections" in said:
        return "Every connection is in use: end idle ones, raise max_connections, or put a pooler in between."
    if "password" in said or "authentication" in said or "pg_hba.conf" in said:
        return "Correct user and password in the URL, or pg_hba.conf on the server."
    if "does not exist" in said:
        return "Correct the name in the URL, or create it on the server."
    return "Check that the server runs, that the URL is right, and that nothing between here and there blocks the port."


def _postgres(patient: Patient) -> Iterator[Remark]:
    server = postgres.server(patient.store)
    if server.version < OLDEST_POSTGRES:
        yield problem(f"Postgres {server.version_text} is too old", "Upgrade it to Postgres 12 or later.")
    else:
        yield ok(f"Postgres {server.version_text}, database {server.database}, role {server.role}")
    if server.is_replica:
        yield problem("this server is a replica, which takes no writes", "Point DATABASE_URL at the primary.")
    elif server.read_only:
        yield problem(
            "transactions are read-only by default here",
            "Unset default_transaction_read_only for this role, database and server"
            " (a managed service sets it when the disk is full).",
        )
    if server.encoding != "UTF8":
        yield problem(
            f"the database's encoding is {server.encoding}: payloads in other alphabets will be refused",
            "Move the tables to a database that was created with ENCODING 'UTF8'.",
        )
    yield _round_trip(patient)


def _round_trip(patient: Patient) -> Remark:
    seconds = min(_seconds_to_ask(patient) for _ in range(_ROUND_TRIPS))
    text = f"a round trip takes {seconds * 1000:.1f} ms"
    if seconds > patient.limits.round_trip_seconds:
        return warning(text, "Run the workers nearer to the database: every claim and every report is a round trip.")
    return ok(text)


def _seconds_to_ask(patient: Patient) -> float:
    began = time.perf_counter()
    postgres.now(patient.store)
    return time.perf_counter() - began


def rights(patient: Patient) -> Iterator[Remark]:
    missing = postgres.missing_rights(patient.store)
    for table, privileges in sorted(missing.items()):
        yield problem(
            f"the role has no {' and '.join(privileges)} on {table}",
            f"As the owner of the tables: GRANT {', '.join(privileges)} ON {table} TO the role.",
        )
    writable = postgres.writable_schema(patient.store)
    if writable is not None:
        yield warning(
            f"the role may create functions in the schema {writable}, and `holdfast db upgrade` could run them as the"
            " owner of the tables",
            f"As the owner of the schema: REVOKE CREATE ON SCHEMA {writable} FROM PUBLIC, and from the role.",
        )
    filtered = postgres.filtered_tables(patient.store)
    for table in filtered:
        yield warning(
            f"row-level security of {table} can hide rows from the role and refuse its writes",
            f"As the owner of the tables: ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, or as a superuser: ALTER ROLE"
            " … BYPASSRLS.",
        )
    if not missing and writable is None and not filtered:
        yield ok("the role may do with the tables what workers and clients do")


def library(_patient: Patient) -> Iterator[Remark]:
    version = sqlite3.sqlite_version_info
    if version < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        yield problem(f"SQLite {sqlite3.sqlite_version} is too old", f"Use a Python with SQLite {oldest} or later.")
    elif version < (3, 51, 3):
        yield info(
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug, which Holdfast avoids by its own checkpoints",
            "If your own code opens this file, set PRAGMA wal_autocheckpoint = 0 on its connections, or use SQLite"
            " 3.51.3 or later.",
        )
    else:
        yield ok(f"SQLite {sqlite3.sqlite_version}")
