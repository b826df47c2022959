"""Rows of either driver as domain values.

psycopg hands over datetimes and parsed JSON; sqlite3 hands over text. Everything above this file sees neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.job import Attempt, AuditEvent, Claimed, Job
from holdfast.domain.lifecycle import State
from holdfast.domain.spec import decode_json
from holdfast.stores import schema
from holdfast.stores.statements.queries import ATTEMPT_COLUMNS, EVENT_COLUMNS, JOB_COLUMNS
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import Json, Time, from_text


def _columns_of(kind: type) -> set[str]:
    tables = schema.metadata.tables.values()
    return {column.name for table in tables for column in table.c if isinstance(column.type, kind)}


FIRST = datetime.min.replace(tzinfo=UTC)
_TIMES = _columns_of(Time)
_JSON = {"error", *_columns_of(Json)}


def moment(value: Any) -> datetime | None:
    """A time in UTC. Text that is none, typed by hand on SQLite, reads as the first time: it breaks no listing."""
    if value is None or isinstance(value, datetime):
        return value
    return some_moment(value) or FIRST


def some_moment(value: Any) -> datetime | None:
    """A time where anything may have been typed by hand on SQLite; what cannot be read is none."""
    if not isinstance(value, str):
        return value if isinstance(value, datetime) else None
    try:
        read = from_text(value)
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parsed(value: Any, dialect: str) -> Any:
    return decode_json(value) if dialect == SQLITE and isinstance(value, str | bytes) else value


def as_text(value: Any) -> Any:
    """SQLite stores a driver's bytes as a BLOB, also in a column of text."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def decoded(names: Sequence[str], row: Sequence[Any], dialect: str) -> dict[str, Any]:
    values = dict(zip(names, row, strict=True))
    if dialect == SQLITE:
        for name, value in values.items():
            if name in _TIMES:
                values[name] = moment(value)
            elif name in _JSON:
                values[name] = parsed(value, dialect)
            elif isinstance(value, bytes):
                values[name] = as_text(value)
    return values


def job(row: Sequence[Any], dialect: str) -> Job:
    values = decoded(JOB_COLUMNS, row, dialect)
    return Job(**{**values, "state": State(values["state"])})


def audit_event(row: Sequence[Any], dialect: str) -> AuditEvent:
    return AuditEvent(**decoded(EVENT_COLUMNS, row, dialect))


def attempt(row: Sequence[Any], dialect: str) -> Attempt:
    return Attempt(**decoded(ATTEMPT_COLUMNS, row, dialect))


def claimed(row: Sequence[Any], token: str) -> Claimed:
    if bytes in map(type, row):
        row = [as_text(value) for value in row]
    job_id, task, version, queue, source, payload, attempt, *counts, timeout, lease, traceparent, due = row[:15]
    failures, crashes, max_attempts, max_crashes = counts
    return Claimed(
        job_id,
        task,
        version,
        queue,
        source,
        payload,
        attempt,
        failures,
        crashes,
        max_attempts,
        max_crashes,
        timeout,
        float(lease),
        traceparent,
        token,
        None,
        _due(due) if attempt == failures + crashes + 1 else None,
    )


def _due(seconds: float | None) -> float | None:
    """None where a hand has typed a time that SQLite cannot read. It computes with a rounding of some microseconds."""
    return None if seconds is None else max(0.0, seconds)
