"""The limits of sources and queues on SQLite, whose columns take any kind of value.

A word in the place of a number, or a time in another form, would stop the claims and the outcomes of all; on Postgres
types and constraints refuse it. Only what is changed is judged, so that a row can always be repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.domain.sources import EARLIEST, HIGHEST_COUNT, HIGHEST_RATE, LATEST, PausedBy
from holdfast.stores import schema
from holdfast.stores.guards import rules
from holdfast.stores.types import to_text

TIME_PATTERN = "0000-00-00T00:00:00.000000Z".replace("0", "[0-9]")


def _whole(low: int, high: int = HIGHEST_COUNT) -> str:
    return f"typeof({{0}}) = 'integer' AND {{0}} BETWEEN {low} AND {high}"


def _number(above: str, high: float) -> str:
    return f"typeof({{0}}) IN ('integer', 'real') AND {{0}} {above} AND {{0}} <= {high:.0f}"


def _json(kind: str) -> str:
    return f"CASE WHEN json_valid({{0}}) THEN json_type({{0}}) = '{kind}' END"


def _or_null(rule: str) -> str:
    return f"{{0}} IS NULL OR {rule}"


# A day that is in the calendar, too: 31 February is the third of March to SQLite, and nothing to everybody else. Day
# and time are judged apart: SQLite takes the last half millisecond of a day for the next one.
_TIME = (
    f"typeof({{0}}) = 'text' AND {{0}} GLOB '{TIME_PATTERN}'"
    " AND date(substr({0}, 1, 10), '+0 days') = substr({0}, 1, 10)"
    " AND substr({0}, 12, 2) < '24' AND substr({0}, 15, 2) < '60' AND substr({0}, 18, 2) < '60'"
    f" AND {{0}} BETWEEN '{to_text(EARLIEST)}' AND '{to_text(LATEST)}'"
)
_FLAG = "typeof({0}) = 'integer' AND {0} IN (0, 1)"
_NUMBERS = {
    "rate_limit_per_minute": _or_null(_number("> 0", HIGHEST_RATE)),
    "burst": _whole(1),
    "max_concurrent": _or_null(_whole(0)),
    "failure_streak": _whole(0, 2**31 - 1),
    "breaker_threshold": _whole(1),
    "breaker_pause_seconds": _number("> 0", 315_360_000),
    "bucket_level": _number(">= 0", HIGHEST_RATE),
}
_WORDS = {
    "name": "typeof({0}) = 'text' AND {0} <> ''",
    "enabled": _FLAG,
    "breaker_counts_permanent": _FLAG,
    "paused_by": _or_null(f"{{0}} IN ({rules.quoted(*PausedBy)})"),
    "breaker_only": _or_null(_json("array")),
    "breaker_ignores": _or_null(_json("array")),
    "declared": _or_null(_json("object")),
}
_TIMES = {
    name: _TIME if name in ("bucket_at", "created_at", "updated_at") else _or_null(_TIME)
    for name in schema.SOURCE_TIMES
}
_QUEUES = {"max_running": _or_null(_whole(0, 2**31 - 1))}

_HOW = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+1 hour')"
# name, table, what its columns must be, and what is said to who types something else
_GUARDS: tuple[tuple[str, str, Mapping[str, str], str], ...] = (
    (
        "holdfast_sources_times",
        "holdfast_sources",
        _TIMES,
        f"times of a source look like 2026-11-15T20:50:59.123456Z; in an hour is {_HOW}",
    ),
    (
        "holdfast_sources_numbers",
        "holdfast_sources",
        _NUMBERS,
        "a limit of a source is not a number, or out of bounds; rate_limit_per_minute is above 0 and at most 1e9,"
        " breaker_pause_seconds at most ten years, burst and breaker_threshold are 1 to 1000000, max_concurrent is"
        " 0 to 1000000",
    ),
    (
        "holdfast_sources_words",
        "holdfast_sources",
        _WORDS,
        "a source has a name; enabled and breaker_counts_permanent are 0 or 1, paused_by is"
        f" {', '.join(PausedBy)} or null, breaker_only and breaker_ignores are JSON arrays or null, declared an object",
    ),
    ("holdfast_queues_limit", "holdfast_queues", _QUEUES, "max_running is a whole number from 0 on, or null"),
)


def triggers(refuse: Callable[[str], str]) -> dict[str, str]:
    """`refuse` makes the statement that turns something away, out of what is said then."""
    made = {}
    for name, table, columns, said in _GUARDS:
        right = {column: f"({rule.format(f'NEW.{column}')})" for column, rule in columns.items()}
        inserted = "\n    AND ".join(right.values())
        updated = "\n    AND ".join(f"(NEW.{column} IS OLD.{column} OR {rule})" for column, rule in right.items())
        for event, condition in (("INSERT", inserted), (f"UPDATE OF {', '.join(columns)}", updated)):
            made[f"{name}_{event.split()[0].lower()}"] = f"""
  BEFORE {event} ON {table} WHEN ({condition}) IS NOT TRUE BEGIN
    {refuse(said)}
  END"""
    return made
