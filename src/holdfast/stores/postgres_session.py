"""A Postgres session: how it is opened, what it is set to, and when it is no longer fit for use.

Whatever a role or a database sets by default (DateStyle, TimeZone, isolation level), our sessions have what our
statements and their readers rely on. On a connection that leads to the server itself the settings are the session's.
Through a pooler a session is shared: pgbouncer keeps DateStyle apart for each client, and for the isolation level each
statement gets a transaction of its own.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads
from sqlalchemy import URL

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.spec import decode_json
from holdfast.stores.postgres_times import UtcLoader
from holdfast.stores.postgres_url import SESSION_KIND

CONNECT_TIMEOUT_SECONDS = 10
# A new session follows DNS and proxies to where the server is now.
MAX_AGE_SECONDS = 30 * 60
# Firewalls and load balancers drop an idle connection after five minutes or later without notifying either end.
MAX_IDLE_SECONDS = 4 * 60
MIN_IDLE_SECONDS = 0.001  # before a session is checked: shorter than a round trip in most networks

# Noted about a connection when it is made: a pooler is in between; statements are compiled (JIT); transactions are
# stricter than READ COMMITTED by default; when it was made (monotonic).
POOLED = "holdfast_pooled"
COMPILES = "holdfast_compiles"
STRICTER = "holdfast_stricter"
MADE = "holdfast_made"

_READ_ONLY = "25006"
_FATAL = ("FATAL", "PANIC")

# A pooler gives every client a cancellation key of its own, with another process id than the backend's: that is how it
# is recognised. One round trip in either case.
_SETTINGS = """
    SELECT direct,
           CASE WHEN direct THEN set_config('jit', 'off', false) ELSE current_setting('jit', true) END = 'on',
           CASE WHEN direct THEN set_config('default_transaction_isolation', 'read committed', false)
                ELSE current_setting('default_transaction_isolation') END <> 'read committed',
           CASE WHEN direct OR current_setting('DateStyle') NOT LIKE 'ISO%%'
                THEN set_config('DateStyle', 'ISO, MDY', false) END,
           CASE WHEN direct THEN set_config('TimeZone', 'UTC', false) END,
           CASE WHEN direct THEN set_config('extra_float_digits', '1', false) END
    FROM (SELECT pg_backend_pid() = %(known)s AS direct) AS session"""
_ISOLATION = "SELECT current_setting('default_transaction_isolation') <> 'read committed'"


@dataclass
class Preparing:
    """After how many executions a statement is prepared on the server; None: never."""

    after: int | None = 5
    through_poolers: bool = False  # the URL says so


def statement_preparation(url: URL) -> Preparing:
    given = url.query.get("prepare_threshold")
    if given is None:
        return Preparing()
    if not str(given).isdecimal():
        raise ConfigurationError(f"prepare_threshold in the database URL must be a number, got {given!r}")
    return Preparing(int(str(given)) or None, through_poolers=True)


def network_options(url: URL, timeout_seconds: float | None) -> dict[str, Any]:
    """Parameters of libpq, but for those that the URL or the environment gives."""
    options: dict[str, Any] = {"client_encoding": "utf8"}
    if SESSION_KIND not in url.query and "PGTARGETSESSIONATTRS" not in os.environ:
        options[SESSION_KIND] = "read-write"
    return {**options, **_timeouts(timeout_seconds)}


def _timeouts(timeout_seconds: float | None) -> dict[str, Any]:
    if timeout_seconds is None:
        return {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    whole = max(1, math.ceil(timeout_seconds))
    return {
        "connect_timeout": whole,
        "keepalives": 1,
        "keepalives_idle": whole,
        "keepalives_interval": max(1, whole // 3),
        "keepalives_count": 3,
        "tcp_user_timeout": math.ceil(timeout_seconds * 1000),
    }


def prepare_session(connection: Any, record: Any, preparing: Preparing) -> None:
    """Set what our statements rely on, and note what the session is."""
    connection.autocommit = True
    connection.adapters.register_loader("timestamptz", UtcLoader)
    known = {"known": connection.info.backend_pid}
    direct, compiles, stricter, *_set = connection.execute(_SETTINGS, known, prepare=False).fetchone()
    if direct or preparing.through_poolers:
        connection.prepare_threshold = preparing.after
    record.info.update({POOLED: not direct, COMPILES: compiles, STRICTER: stricter and not direct})
    record.info[MADE] = time.monotonic()


def adapt_reading(cursor: Any) -> None:
    """Read times and JSON as our own sessions do, on a cursor of the user's session."""
    cursor.adapters.register_loader("timestamptz", UtcLoader)
    set_json_loads(decode_json, cursor)


def set_iso_dates(connection: Any) -> str | None:
    """Set DateStyle to ISO; return the previous style, or None if it was ISO."""
    style: str | None = connection.info.parameter_status("DateStyle")
    if style is None or style.startswith("ISO"):
        return None
    connection.execute("SET DateStyle = 'ISO'", prepare=False)
    return style


def restore_dates(connection: Any, style: str | None) -> None:
    """Restore the DateStyle that `set_iso_dates` returned."""
    if style is not None:
        connection.execute("SELECT set_config('DateStyle', %s, false)", [style], prepare=False)


def is_stricter(connection: Any) -> bool:
    """Whether single statements of a session that we may not set run above READ COMMITTED."""
    with connection.cursor() as cursor:
        row = cursor.execute(_ISOLATION, prepare=False).fetchone()
    if not connection.autocommit:
        connection.rollback()
    return bool(row[0])


def is_fit(connection: Any, noted: Mapping[str, Any], idle_since: float) -> bool:
    """False for a session that is too old, was idle for too long, or that the server has closed meanwhile.

    `idle_since` is 0 if unknown. A session idle for less than MIN_IDLE_SECONDS is not checked: a close in that time is
    no likelier than during a call. The check takes 3 of the 60 microseconds of an enqueue.
    """
    now = time.monotonic()
    if now - noted.get(MADE, now) > MAX_AGE_SECONDS or (idle_since and now - idle_since > MAX_IDLE_SECONDS):
        return False
    return now - idle_since < MIN_IDLE_SECONDS or not _has_input(connection)


def _has_input(connection: Any) -> bool:
    """An idle session with something to read has been closed. (Or the server's configuration was reloaded: then a new
    connection costs a few milliseconds once.)"""
    try:
        waiting = select.poll()
        waiting.register(connection.pgconn.socket, select.POLLIN)
        return bool(waiting.poll(0))
    except (psycopg.Error, OSError, ValueError):
        return True


def is_read_only_or_fatal(error: psycopg.Error) -> bool:
    """The session is of no more use: it leads to a standby, or the server ends it, whatever the code says."""
    return error.sqlstate == _READ_ONLY or error.diag.severity_nonlocalized in _FATAL
