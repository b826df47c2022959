"""Canonical JSON and the identity of a run.

`spec_hash` is SHA-256 over the canonical JSON (RFC 8785) of task name, task version and payload, with one documented
deviation: integers of any size are written in plain decimal, where RFC 8785 would force them into a double. Snowflake
ids and the like are common, and two different ids must not share a hash. NaN and infinities are refused.

`check_json` is the one place that decides what a JSON value may contain. Its walk also finds out whether the plain C
encoder already yields the canonical form (no floats, no keys beyond the basic plane), which is nearly always so and
several times faster.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import rfc8785

from holdfast.domain.artifacts import ArtifactRef
from holdfast.domain.errors import InvalidInput

MAX_DEPTH = 64
MAX_INTEGER_BITS = 14_000  # about 4,200 digits; Python itself reads no more than 4,300
_SHORT_FROM, _SHORT_TO = -(1 << 63), (1 << 63) - 1

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_encode_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def _quick_encode() -> Callable[[Any], str]:
    """What `JSONEncoder.encode` does, with the C encoder made once instead of for every value: a third of its time.

    Cycles are not looked for: `check_json` allows no such depth."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not CPython
        return _encoder.encode
    text_of = json.encoder.encode_basestring
    chunks = make(None, _encoder.default, text_of, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _quick_encode()


def check_json(value: Any, field: str, *, around: int = 0) -> bool:
    """Refuse what JSON or a store cannot hold; True when the C encoder's sorted output is already canonical.

    `around`: levels of the engine's own in this value, around what a user may nest as deeply as anywhere."""
    return _walk(value, field, MAX_DEPTH + around)


def encode_json(value: Any) -> str:
    """Compact JSON text of a value that `check_json` has passed."""
    return _encode(value)


def canonical_json(value: Any, field: str = "value") -> bytes:
    """RFC 8785 with integers of any size."""
    return _canonical_text(value, is_plain=check_json(value, field)).encode()


def spec_hash(task: str, version: str | None, payload: dict[str, Any]) -> str:
    return sha256(canonical_spec(task, version, payload).encode()).hexdigest()


def identified(task: str, version: str | None, payload: dict[str, Any]) -> tuple[str, str]:
    """The hash, and the payload as compact JSON text in its own order; encoded once where that is the canonical one."""
    is_plain = check_json(payload, "payload")
    text = canonical = _encode(payload)
    if not is_plain or text.find("{", 1) > 0 or (len(payload) > 1 and list(payload) != sorted(payload)):
        canonical = _canonical_text(payload, is_plain=is_plain)
    return sha256(f'{{"payload":{canonical},{_named(task, version)}}}'.encode()).hexdigest(), text


def canonical_spec(task: str, version: str | None, payload: dict[str, Any]) -> str:
    """What is hashed."""
    canonical = _canonical_text(payload, is_plain=check_json(payload, "payload"))
    return f'{{"payload":{canonical},{_named(task, version)}}}'


@lru_cache(1_000)
def _named(task: str, version: str | None) -> str:
    return f'"task":{_encode(task)},"version":{_encode(version)}'


def _canonical_text(value: Any, *, is_plain: bool) -> str:
    return _encode_sorted(value) if is_plain else _canonical(value)


def _walk(value: Any, field: str, depth: int) -> bool:
    kind = type(value)
    if kind is str:
        _check_text(value, field)
        return True
    if kind is int:
        if value.bit_length() > MAX_INTEGER_BITS:
            raise InvalidInput(field, "is an integer of thousands of digits, which JSON parsers refuse")
        return True
    if kind is bool or value is None:
        return True
    if kind is float:
        if not math.isfinite(value):
            raise InvalidInput(field, f"NaN and infinities are not JSON, got {value!r}")
        return False
    if depth <= 0 and kind is not ArtifactRef:
        raise InvalidInput(field, f"is nested deeper than {MAX_DEPTH} levels")
    if kind is dict:
        return _walk_object(value, field, depth)
    if kind is list or kind is tuple:
        plain = True
        for index, item in enumerate(value):
            if not _walk(item, f"{field}[{index}]", depth - 1):
                plain = False
        return plain
    if kind is ArtifactRef:  # text, to whoever gets it
        _check_text(value, field)
        return True
    raise InvalidInput(field, f"is a {kind.__name__}, which JSON cannot express; convert it first")


def _walk_object(value: dict[Any, Any], field: str, depth: int) -> bool:
    plain = True
    for key, item in value.items():
        if type(key) is not str:
            raise InvalidInput(field, f"keys of an object must be strings, got {key!r}")
        if not key.isascii() or "\x00" in key:
            _check_text(key, field)
            # RFC 8785 sorts keys by UTF-16 code unit; Python sorts by code point. They differ only from U+D800 up.
            plain = plain and max(key) < "\ud800"
        kind = type(item)  # most members are short numbers and plain text, of which nothing else has to be known
        if kind is int and _SHORT_FROM <= item <= _SHORT_TO:
            continue
        if kind is str and item.isascii() and "\x00" not in item:
            continue
        if not _walk(item, f"{field}.{key}", depth - 1):
            plain = False
    return plain


def _check_text(text: str, field: str) -> None:
    if "\x00" in text:
        raise InvalidInput(field, "contains a NUL character, which Postgres cannot store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(field, "contains a lone surrogate, which is not valid Unicode") from None


def _canonical(value: Any) -> str:
    match value:
        case bool() | None:
            return _encode(value)
        case int():
            return str(int(value))
        case dict():
            members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
            return "{" + ",".join(f"{_canonical(key)}:{_canonical(item)}" for key, item in members) + "}"
        case list() | tuple():
            return "[" + ",".join(_canonical(item) for item in value) + "]"
        case _:
            return rfc8785.dumps(value).decode()
