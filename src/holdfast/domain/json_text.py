"""JSON as strictly as RFC 8259 allows, and within bounds: one text has one meaning, and reading it is cheap.

Python's parser takes more than that: the last of two equal keys wins, NaN and infinities are numbers, 1e999 is one of
them, and half a character is text. A text that two readers could read differently is refused, not interpreted.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from holdfast.domain.errors import InvalidInput


def parse(raw: bytes, most_depth: int, field: str = "body") -> Any:
    try:
        return _parsed(raw, most_depth)
    except _Refusal as refusal:
        raise InvalidInput(field, str(refusal)) from None


class _Refusal(Exception):
    """The rule that the text breaks."""


def _parsed(raw: bytes, most_depth: int) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _Refusal(f"is not UTF-8 at byte {error.start}, as JSON must be") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _Refusal(f"is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _too_deep(most_depth) from None
    except ValueError:
        raise _Refusal("has a number of thousands of digits, which no JSON parser need read") from None
    # Neither can be where these are not, which is nearly always: the walk costs as much as the parser.
    if raw.count(b"[") + raw.count(b"{") > most_depth or b"\\u" in raw:
        _walk(value, most_depth)
    return value


def _walk(value: Any, most_depth: int) -> None:
    """Level by level: the depth of what was sent is not the depth of our stack."""
    level, depth = [value], 0
    while level:
        if depth >= most_depth and any(type(item) in (dict, list) for item in level):
            raise _too_deep(most_depth)
        for item in level:
            for text in item if type(item) is dict else (item,):
                _check_text(text)
        level = [part for item in level for part in _parts(item)]
        depth += 1


def _parts(item: Any) -> Any:
    if type(item) is dict:
        return item.values()
    return item if type(item) is list else ()


def _check_text(text: Any) -> None:
    if type(text) is str and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Refusal("has half of a surrogate pair, which is not a character") from None


def _too_deep(most_depth: int) -> _Refusal:
    return _Refusal(f"is nested deeper than {most_depth} levels")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _value in pairs).items() if count > 1)
        raise _Refusal(f"an object has the key {twice[:100]!r} twice")
    return found


def _constant(name: str) -> float:
    raise _Refusal(f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Refusal(f"the number {text[:40]} is too large")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
