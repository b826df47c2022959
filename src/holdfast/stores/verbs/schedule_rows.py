"""Schedules and ticks between their rows and their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.errors import Conflict
from holdfast.domain.schedule import Schedule, Tick
from holdfast.domain.spec import check_json, encode_json
from holdfast.stores import rows
from holdfast.stores.database import Row, Transaction
from holdfast.stores.statements import schedules as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import from_text, to_text

_encode_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def schedule(row: Row) -> Schedule:
    """Refuses what somebody has typed into it that is no time, or no JSON."""
    columns = zip(sql.COLUMNS.items(), row, strict=True)
    return Schedule(**{name: _read(str(row[0]), name, kind, value) for (name, kind), value in columns})


def tick(row: Row, dialect: str) -> Tick:
    return Tick(**_in_utc(rows.decoded(sql.TICK_COLUMNS, row, dialect)))


def parameters(value: Schedule, dialect: str) -> dict[str, Any]:
    return {name: _parameter(getattr(value, name), kind, dialect) for name, kind in sql.COLUMNS.items()}


def store_now(transaction: Transaction) -> datetime:
    [[now]] = transaction.rows(sql.NOW)
    return utc(now)


def utc(value: Any) -> datetime:
    """A session of Postgres may have any time zone. Raises for text that is no time: such a schedule must not fire."""
    moment = from_text(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.astimezone(UTC)


def time_parameter(moment: datetime | None, dialect: str) -> Any:
    return to_text(moment) if moment is not None and dialect == SQLITE else moment


def declaration_text(declared: dict[str, Any]) -> str:
    """In one form, so that equal declarations are equal texts; not RFC 8785, in which 1.0 would come back as 1."""
    check_json(declared, "schedule", around=2)  # the payload is in the job, which is in the declaration
    return _encode_sorted(declared)


def _parameter(value: Any, kind: str, dialect: str) -> Any:
    if kind == "timestamptz":
        return time_parameter(value, dialect)
    if kind == "json" and value is not None:
        return declaration_text(value)
    return value


def encode_rows(values: list[dict[str, Any]], dialect: str) -> str:
    """For a statement that takes many: times in the form that the dialect reads."""
    return encode_json(
        [{name: _json_time(value, dialect) for name, value in item.items()} for item in values],
    )


def _json_time(value: Any, dialect: str) -> Any:
    if not isinstance(value, datetime):
        return value
    return to_text(value) if dialect == SQLITE else value.isoformat()


def _read(schedule: str, column: str, kind: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return _READERS[kind](value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Conflict(
            "schedule",
            f"{schedule} has {column} = {str(value)[:60]!r} in its row, which cannot be read as {_KINDS[kind]};"
            f" remove it with `holdfast schedules remove {schedule}`, or correct the row",
        ) from None


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": lambda value: _of(str, value),
    "json": lambda value: _of(dict, json.loads(value)),
    "float8": lambda value: _of(int | float, value),
    "integer": lambda value: _of(int, value),
    "timestamptz": utc,
}
_KINDS = {
    "text": "text",
    "json": "a JSON object",
    "float8": "a number",
    "integer": "a whole number",
    "timestamptz": "a time",
}


def _in_utc(values: dict[str, Any]) -> dict[str, Any]:
    # A session of Postgres may have any time zone.
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
        for name, value in values.items()
    }
