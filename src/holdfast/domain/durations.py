"""Durations as people write them: "10m", "1h30m", "250ms", 90, timedelta(...)."""

from __future__ import annotations

import math
import re
import sys
from datetime import timedelta

from holdfast.domain.errors import InvalidInput

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")
_RULE = 'must be a duration such as "30s", "10m", "1h30m", "2d", or a number of seconds'

LONGEST_SECONDS = 10 * 365 * 86400.0


def seconds(value: float | str | timedelta, field: str = "duration") -> float:
    """The duration in seconds; refuses what is negative, endless or longer than ten years."""
    result = _parse(value, field)
    if not math.isfinite(result) or result < 0:
        raise InvalidInput(field, f"{_RULE}; it may not be negative or endless, got {result:g} s")
    if result > LONGEST_SECONDS:
        raise InvalidInput(field, f"must be at most ten years, got {result:g} s")
    return result


def _parse(value: float | str | timedelta, field: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        raise InvalidInput(field, f"{_RULE}, got {value!r}")
    if isinstance(value, int | float):
        return _as_float(value)
    if isinstance(value, str):
        return _parse_text(value, field)
    raise InvalidInput(field, f"{_RULE}, got {type(value).__name__}")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return sys.float_info.max if value > 0 else -sys.float_info.max


def _parse_text(text: str, field: str) -> float:
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise InvalidInput(field, f"{_RULE}, got {text[:40]!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


_SPOKEN = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def spoken(seconds: float) -> str:
    """As people say it: rounded, in the largest unit of which there is at least one."""
    for size, unit in _SPOKEN:
        if seconds >= size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds * 1000:.0f} ms"
