"""Limits as they are typed: a number, or `none` for no limit."""

from __future__ import annotations

from holdfast.domain.errors import InvalidInput

NONE = "none"


def whole_number(text: str, field: str) -> int | None:
    if text.lower() == NONE:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(field, f"must be a whole number, or none for no limit, got {text[:40]!r}") from None


def number(text: str, field: str) -> float | None:
    if text.lower() == NONE:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(field, f"must be a number, or none for no limit, got {text[:40]!r}") from None
