"""Sources: the outside systems that jobs touch, what may be said of their limits, and entering and leaving one.

A job is admitted to the source it was enqueued with before it is claimed; inside a job `ctx.source(name)` asks for any
source, and holds it until it leaves. `domain/admission.py` decides, `domain/breaker.py` moves the breaker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_integer, check_moment, check_name

_PER_MINUTE = {"s": 60.0, "m": 1.0, "h": 1 / 60.0, "d": 1 / 1440.0}
_UNITS = {
    "s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m",
    "h": "h", "hour": "h", "d": "d", "day": "d",
}  # fmt: skip
_RATE = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*(?:/|\s+per\s+|\s+a\s+)\s*([a-z]+)\s*", re.ASCII)
HIGHEST_RATE = 1e9
HIGHEST_COUNT = 1_000_000
MOST_CODES = 100
_ABOVE_ZERO = math.ulp(0.0)
# As far as a clock can be read in every time zone there is: a database shows times in its own, and no driver can read
# the year 10000.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, 8, tzinfo=UTC)


def per_minute(rate: str | float, field: str = "rate") -> float:
    """A rate such as "100/m", "5/s", "1000 per hour", or a number a minute."""
    number: Any = rate
    if isinstance(rate, str):
        found = _RATE.fullmatch(rate.lower())
        unit = None if found is None else _UNITS.get(found[2])
        if found is not None and unit is not None:
            number = float(found[1]) * _PER_MINUTE[unit]
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= HIGHEST_RATE:
        raise InvalidInput(field, f'must be a rate such as "5/s", "100/m", "1000/h" or "1/d", got {str(rate)[:40]!r}')
    return float(number)


class PausedBy(StrEnum):
    BREAKER = "breaker"
    OPERATOR = "operator"
    RETRY_AFTER = "retry_after"  # it said itself when it wants to hear from us again


class Breaker(StrEnum):
    CLOSED = "closed"  # work flows
    OPEN = "open"  # nothing is let in until `paused_until`
    HALF_OPEN = "half_open"  # the pause is over: one job at a time, until one succeeds


class End(StrEnum):
    """How the time inside a source ended, as far as the source is concerned."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    THROTTLED = "throttled"  # it asked to be left alone for a while
    NOTHING = "nothing"  # it says nothing about the source


@dataclass(frozen=True, slots=True)
class Entry:
    """A wish to enter a source. `number` counts the entries of one attempt, so that asking twice enters once.
    `prepaid`: the job was claimed under this very source, and the token which that cost is not used yet."""

    source: str
    number: int
    prepaid: bool = False


@dataclass(frozen=True, slots=True)
class Entered:
    """`admitted`, or the seconds after which it is worth to ask again, and why not now: rate, concurrency, breaker,
    paused, disabled or busy."""

    admitted: bool
    retry_in: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The end of an entry. `code` and `retryable` are those of the error it failed with; `retry_after` in seconds."""

    source: str
    number: int
    end: End = End.NOTHING
    code: str = ""
    retryable: bool = True
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """A source and its limits as code declares them: names and values as `set_source` takes them."""

    name: str
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cached:
    """A value from the cache; its own None is a value."""

    value: Any


# Limits as they are named and stored, with what holds where nothing was said. `paused_until` is no limit of the code's.
DEFAULTS: dict[str, Any] = {
    "enabled": True,
    "rate_limit_per_minute": None,
    "burst": 1,
    "max_concurrent": None,
    "paused_until": None,
    "breaker_threshold": 5,
    "breaker_pause_seconds": 300.0,
    "breaker_only": None,
    "breaker_ignores": (),
    "breaker_counts_permanent": True,
}


# The lowest and the highest that a number in a source's row may be, and what it is taken for where it is none.
_BOUNDS: dict[str, tuple[float, float, float | None]] = {
    "rate_limit_per_minute": (_ABOVE_ZERO, HIGHEST_RATE, None),
    "burst": (1, HIGHEST_COUNT, 1),
    "max_concurrent": (0, HIGHEST_COUNT, None),
    "failure_streak": (0, 2**31 - 1, 0),
    "breaker_threshold": (1, HIGHEST_COUNT, 5),
    "breaker_pause_seconds": (_ABOVE_ZERO, durations.LONGEST_SECONDS, 300.0),
    "bucket_level": (0, HIGHEST_RATE, 0.0),
}


def understood(field: str, stored: Any) -> Any:
    """A number of a source's row as it can be worked with, whatever was typed there: no outcome may hang on that."""
    low, high, otherwise = _BOUNDS[field]
    if stored is None or isinstance(stored, bool) or not isinstance(stored, int | float) or math.isnan(stored):
        return otherwise
    return min(max(stored, low), high)


def check_limits(given: Mapping[str, Any]) -> dict[str, Any]:
    """As they are stored: a `rate` such as "100/m" is a `rate_limit_per_minute`. `paused_for` stays what it is: seconds
    from the moment at which the store is told."""
    limits = dict(given)
    if "paused_for" in limits and "paused_until" in limits:
        raise InvalidInput("paused_for", "cannot be given together with paused_until; choose one")
    if "rate" in limits:
        if "rate_limit_per_minute" in limits:
            raise InvalidInput("rate", "cannot be given together with rate_limit_per_minute; choose one")
        rate = limits.pop("rate")
        limits["rate_limit_per_minute"] = None if rate is None else per_minute(rate)
    for name in limits:
        if name not in _CHECKS:
            raise InvalidInput(str(name), f"unknown option; known are {', '.join(sorted((*_CHECKS, 'rate')))}")
    return {name: _CHECKS[name](value, name) for name, value in limits.items()}


def check_declaration(declared: SourceDeclaration) -> SourceDeclaration:
    name = check_name(declared.name, "source")
    for pause in ("paused_until", "paused_for"):
        if pause in declared.limits:
            raise InvalidInput(pause, f"cannot be declared in code (source {name}); an operator pauses a source")
    return SourceDeclaration(name, check_limits(declared.limits))


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be true or false, got {value!r}")
    return value


def _optional_number(value: Any, field: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= HIGHEST_RATE:
        raise InvalidInput(field, f"must be a number above 0, or none for no limit, got {str(value)[:40]!r}")
    return float(value)


def _count(value: Any, field: str) -> int:
    return check_integer(value, field, 1, HIGHEST_COUNT)


def _optional_count(value: Any, field: str) -> int | None:
    return None if value is None else check_integer(value, field, 0, HIGHEST_COUNT)


def _optional_moment(value: Any, field: str) -> Any:
    if value is not None and not EARLIEST <= check_moment(value, field) <= LATEST:
        raise InvalidInput(field, f"must be between {EARLIEST.date()} and {LATEST.date()}, got {value}")
    return value


def _pause(value: Any, field: str) -> float:
    seconds = durations.seconds(value, field)
    if seconds <= 0:
        raise InvalidInput(field, f"must be more than zero, got {str(value)[:40]!r}")
    return seconds


def _codes(value: Any, field: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise InvalidInput(field, f"must be a list of error codes, got {str(value)[:40]!r}")
    codes = dict.fromkeys(check_name(code, field) for code in value)
    if len(codes) > MOST_CODES:
        raise InvalidInput(field, f"must be at most {MOST_CODES} error codes, got {len(codes)}")
    return tuple(sorted(codes))


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "enabled": _flag,
    "rate_limit_per_minute": _optional_number,
    "burst": _count,
    "max_concurrent": _optional_count,
    "paused_until": _optional_moment,
    "paused_for": _pause,
    "breaker_threshold": _count,
    "breaker_pause_seconds": _pause,
    "breaker_only": lambda value, field: None if value is None else _codes(value, field),
    "breaker_ignores": lambda value, field: () if value is None else _codes(value, field),
    "breaker_counts_permanent": _flag,
}
