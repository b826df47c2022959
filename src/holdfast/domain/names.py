"""Rules for names and other small values that callers hand in."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from holdfast.domain.errors import InvalidInput

_CANONICAL_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MAX_NAME = 200
MAX_PRIORITY = 100


def check_name(value: Any, field: str) -> str:
    """A task, queue, source or worker name: 1 to 200 characters, none of them a control character."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {type(value).__name__}")
    return _check_name(value, field)


@lru_cache(1_000)  # the same few names, in every job
def _check_name(value: str, field: str) -> str:
    if not value.strip():
        raise InvalidInput(field, "must not be empty")
    if len(value) > MAX_NAME:
        raise InvalidInput(field, f"must be at most {MAX_NAME} characters, got {len(value)}")
    if not value.isprintable():
        raise InvalidInput(field, "must not contain control characters or lone surrogates (NUL and newline included)")
    return value


def storable_text(value: str, limit: int) -> str:
    """Text from elsewhere, made to fit: what no store can hold is replaced, what is too long loses its middle."""
    if type(value) is str and value.isascii() and value.isprintable() and len(value) <= limit:
        return value
    clean = str(value).replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n… {len(clean) - 2 * half} characters left out …\n{clean[-half:]}"


def check_integer(value: Any, field: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"must be a whole number, got {value!r}")
    if not low <= value <= high:
        raise InvalidInput(field, f"must be between {low} and {high}, got {value}")
    return value


def check_moment(value: Any, field: str) -> datetime:
    """The time in UTC. At the edges of the calendar the same digits are in range in one zone and not in another."""
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"must be a datetime, got {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidInput(field, "must carry a time zone; a naive datetime is ambiguous (use datetime.now(UTC))")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(field, f"must be between the years 1 and 9999 in UTC, got {value.isoformat()}") from None


def check_id(value: Any, field: str = "id") -> str:
    """A job id in its canonical form: lower case, with hyphens."""
    if type(value) is str and _CANONICAL_ID.fullmatch(value):
        return value
    try:
        return str(uuid.UUID(value if isinstance(value, str) else str(value)))
    except (ValueError, AttributeError):
        raise InvalidInput(field, f"must be a UUID, got {str(value)[:60]!r}") from None
