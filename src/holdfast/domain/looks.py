"""What one attempt tells of the caches of its sources: how often it found something there, and how often not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name

# Hits and misses, by source.
Looks = Mapping[str, tuple[int, int]]
MOST_SOURCES = 50
MOST_LOOKS = 10**9


def readable_looks(told: Any) -> dict[str, tuple[int, int]]:
    """What can be read of it: it is only for people to look at, and must not keep an outcome from being recorded."""
    if not isinstance(told, Mapping):
        return {}
    found = {name: tuple(looks) for name, looks in told.items() if _is_name(name) and _are_looks(looks)}
    return dict(list(found.items())[:MOST_SOURCES])


def _are_looks(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_figure, value)) and any(value)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_LOOKS


def _is_name(value: Any) -> bool:
    try:
        return bool(check_name(value, "source"))
    except InvalidInput:
        return False
