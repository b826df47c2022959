"""What may be kept in the response cache, wherever that is."""

from __future__ import annotations

from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput, TooLarge
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.spec import check_json, encode_json

MAX_CACHE_KEY = 512  # characters; what is longer, or no text, is hashed by whoever asks
MAX_CACHED_BYTES = 1024 * 1024
SHORTEST_TTL_SECONDS = 0.001
LONGEST_TTL_SECONDS = 30 * 86_400.0
MOST_FORGOTTEN = 10_000  # in one batch


def check_place(source: Any, key: Any) -> tuple[str, str]:
    """Under which source, and under which key there."""
    check_name(source, "source")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_CACHE_KEY:
        got = f"{len(key):,}" if isinstance(key, str) else type(key).__name__
        raise InvalidInput("key", f"must be text of 1 to {MAX_CACHE_KEY} characters, got {got}")
    check_json(key, "key")
    return source, key


def checked_value(value: Any) -> str:
    """As JSON text."""
    check_json(value, "value")
    text = encode_json(value)
    if len(text.encode()) > MAX_CACHED_BYTES:
        raise TooLarge("value", f"must be at most {MAX_CACHED_BYTES:,} bytes of JSON to be cached", MAX_CACHED_BYTES)
    return text


def checked_ttl(seconds: Any) -> float:
    found = durations.seconds(seconds, "ttl_seconds")
    if not SHORTEST_TTL_SECONDS <= found <= LONGEST_TTL_SECONDS:
        raise InvalidInput("ttl_seconds", f"must be from a millisecond to 30 days, got {found:g} s")
    return found


def checked_batch(limit: Any) -> int:
    return check_integer(limit, "limit", 1, MOST_FORGOTTEN)
