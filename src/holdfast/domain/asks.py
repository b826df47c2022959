"""What a running job asks the engine for, as JSON: a runner has no store, so its supervisor takes the asks there.

An answer is the value that the verb has, or an error that is raised in the job as what it was in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.domain.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    InvalidInput,
    LeaseLost,
    NotFound,
    StoreUnavailable,
    TooLarge,
)


class Verb(StrEnum):
    RECORDS = "records"  # {records: [NewRecord…]} → [Written…]
    ENTER = "enter"  # Entry → Entered
    LEAVE = "leave"  # Leaving → null
    CACHED = "cached"  # {source, key} → {enabled, found, value}
    KEEP_CACHED = "keep_cached"  # {source, key, value, ttl_seconds: null for that of the settings} → null


# A job need not wait for a cache: the outside system itself has the answer.
OF_THE_CACHE = frozenset({Verb.CACHED, Verb.KEEP_CACHED})

# One ask; the supervisor holds it in memory, and no store takes more.
MOST_BYTES = 4 * 1024 * 1024

# The first that fits counts.
_KINDS: tuple[tuple[str, type[HoldfastError]], ...] = (
    ("too_large", TooLarge),
    ("conflict", Conflict),
    ("invalid_input", InvalidInput),
    ("lease_lost", LeaseLost),
    ("unavailable", StoreUnavailable),
    ("configuration", ConfigurationError),
    ("not_found", NotFound),
)


def error_to_json(error: Exception) -> dict[str, Any]:
    kind = next((name for name, known in _KINDS if isinstance(error, known)), "other")
    if isinstance(error, InvalidInput):
        return {"kind": kind, "message": str(error), "field": error.field, "rule": error.rule}
    message = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    return {"kind": kind, "message": message}


def error_from_json(value: Mapping[str, Any]) -> HoldfastError:
    kind, message = value["kind"], str(value["message"])
    match kind:
        case "too_large":
            return TooLarge(value["field"], value["rule"], None)
        case "conflict":
            return Conflict(value["field"], value["rule"])
        case "invalid_input":
            return InvalidInput(value["field"], value["rule"])
    known = next((error for name, error in _KINDS if name == kind), HoldfastError)
    return known(message)
