"""Canonical JSON and the identity of a run.

`spec_hash` is SHA-256 over the canonical JSON (RFC 8785) of task name, task version and payload, with one documented
deviation: integers of any size are written in plain decimal, where RFC 8785 would force them into a double. Snowflake
ids and the like are common, and two different ids must not share a hash. NaN and infinities are refused.

`check_json` is the one place that decides what a JSON value may contain. Its walk also finds out whether the plain C
encoder already yields the canonical form (no floats, no keys beyond the basic plane), which is nearly always so and
several times faster.

`decode_json` reads what is stored. A raw INSERT can store JSON that `check_json` would refuse: a reader gets a value
that says so, and the job fails alone.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import Any

import rfc8785

from holdfast.domain.artifacts import ArtifactRef
from holdfast.domain.errors import InvalidInput
from holdfast.domain.json_codec import make_decoder, make_encoder

MAX_DEPTH = 64
MAX_INTEGER_BITS = 14_000  # about 4,200 digits; Python itself reads no more than 4,300
MAX_STORED_DEPTH = 500  # half of what Python's own stack allows: every reader and writer of a value stays below it
MAX_SHOWN_TEXT = 200
_SHORT_FROM, _SHORT_TO = -(1 << 63), (1 << 63) - 1

_encode = make_encoder(ascii_only=False)
_encode_sorted = make_encoder(ascii_only=False, sort_keys=True)


class Undecodable(dict[str, Any]):
    """Stands for a stored value that cannot be decoded, wherever one is read. `reason` completes "the value …"."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(undecodable=reason, text=text[:MAX_SHOWN_TEXT])
        self.reason = reason


def decode_json(text: str | bytes) -> Any:
    """The stored value, or `Undecodable`. Never raises: one bad value must not hide its neighbours."""
    try:
        if not isinstance(text, str):
            text = text.decode()
        if text.count("[") + text.count("{") > MAX_STORED_DEPTH and _depth(text) > MAX_STORED_DEPTH:
            return Undecodable(_TOO_DEEP, text)
        value = _decode(text)
        if "\\ud" in text or "\\uD" in text:
            _encode(value).encode()
    except RecursionError:
        return Undecodable(_TOO_DEEP, str(text))
    except UnicodeError:
        shown = text if isinstance(text, str) else text.decode(errors="backslashreplace")
        return Undecodable("contains a lone surrogate or bytes that are not UTF-8", shown)
    except ValueError as error:
        return Undecodable(f"is not JSON that can be read: {error}", str(text))
    return value


_TOO_DEEP = f"is nested deeper than {MAX_STORED_DEPTH} levels"
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = re.compile(r"[\[\]{}]")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def _depth(text: str) -> int:
    """How deep it is nested; without recursion, which is what too deep a value exhausts."""
    return max(accumulate(map(_STEPS.__getitem__, _BRACKETS.findall(_STRINGS.sub("", text)))), default=0)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decode = make_decoder(parse_float=_finite, parse_constant=_refuse_constant)


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
