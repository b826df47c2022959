"""Append and read what jobs said. It comes from user code: what no store can hold is replaced, never refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.names import MAX_NAME, check_id, check_integer, storable_text
from holdfast.domain.spec import MAX_INTEGER_BITS, encode_json
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements import logs as sql
from holdfast.stores.statements.words import SQLITE
from holdfast.stores.types import to_text

MAX_MESSAGE = 64 * 1024
MAX_FIELDS = 16 * 1024
MAX_DEPTH = 16
MAX_PAGE = 10_000
_MOST = 2**31 - 1
_START = (-1, -1)


def append_logs(database: Database, lines: Sequence[LogLine]) -> None:
    if not lines:
        return
    encoded = ",".join(encode_json(_encode(line, database.dialect)) for line in lines)
    with database.statement() as transaction:
        transaction.run(sql.APPEND, {"rows": f"[{encoded}]"})


def logs(
    database: Database, job_id: str, attempt: int | None, after: tuple[int, int] | None, limit: int
) -> list[LogLine]:
    after_attempt, after_number = after or _START
    wanted = {
        "id": check_id(job_id, "job_id"),
        "attempt": None if attempt is None else check_integer(attempt, "attempt", 0, _MOST),
        "after_attempt": check_integer(after_attempt, "after", -1, _MOST),
        "after_number": check_integer(after_number, "after", -1, _MOST),
        "limit": check_integer(limit, "limit", 1, MAX_PAGE),
    }
    with database.reading() as transaction:
        return [_line(row, database.dialect) for row in transaction.rows(sql.LINES, wanted)]


def last_logs(database: Database, job_id: str, limit: int) -> list[LogLine]:
    """The end of what it said, in order."""
    wanted = {"id": check_id(job_id, "job_id"), "limit": check_integer(limit, "limit", 1, MAX_PAGE)}
    with database.reading() as transaction:
        return [_line(row, database.dialect) for row in reversed(transaction.rows(sql.LAST, wanted))]


def count_logs(database: Database, job_id: str) -> int:
    with database.reading() as transaction:
        [(count,)] = transaction.rows(sql.COUNT, {"id": check_id(job_id, "job_id")})
    return int(count)


def _encode(line: LogLine, dialect: str) -> dict[str, Any]:
    return {
        "job_id": check_id(line.job_id, "job_id"),
        "attempt": check_integer(line.attempt, "attempt", 0, _MOST),
        "number": check_integer(line.number, "number", 0, _MOST),
        "at": to_text(line.at) if dialect == SQLITE else line.at.isoformat(),
        "stream": str(line.stream),
        "level": None if line.level is None else storable_text(line.level, MAX_NAME),
        "message": storable_text(line.message, MAX_MESSAGE),
        "fields": _fields(line.fields) if line.fields else None,
    }


def _line(row: Row, dialect: str) -> LogLine:
    values = rows.decoded(tuple(sql.COLUMNS), row, dialect)
    return LogLine(**{**values, "stream": Stream(values["stream"]), "fields": values["fields"] or {}})


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _storable(fields, MAX_DEPTH)
    text = encode_json(kept)
    return kept if len(text) <= MAX_FIELDS else {"too_long": storable_text(text, MAX_FIELDS)}


def _storable(value: Any, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() <= MAX_INTEGER_BITS:
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else repr(value)
        case dict() if depth > 0:
            return {storable_text(key, MAX_NAME): _storable(item, depth - 1) for key, item in value.items()}
        case list() | tuple() if depth > 0:
            return [_storable(item, depth - 1) for item in value]
        case str():
            return storable_text(value, MAX_MESSAGE)
    return f"<{type(value).__name__}>"  # not its repr, which is user code
