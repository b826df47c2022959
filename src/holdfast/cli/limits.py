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


def unless_none(text: str) -> str | None:
    return None if text.lower() == NONE else text


def names(text: str) -> list[str] | None:
    """`A,B`; nothing or `none` for no list at all."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    return None if [name.lower() for name in found] in ([], [NONE]) else found
