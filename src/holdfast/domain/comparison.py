"""Are two results the same, and if not, where do they differ: lines that a person can read.

Values are compared as JSON: the order of keys means nothing, 1 and 1.0 are one number, true and 1 are not. Numbers are
compared exactly unless a relative tolerance is given; two integers always are, because an id that is nearly right is
another id.

The walk keeps its own stack: how deep a result is nested is its author's choice. Of very many differences all are
counted, and the first ones told.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.spec import canonical_json

MOST_LINES = 20
SHOWN = 60  # characters of a value
LONGEST_PATH = 100  # at each end
_BEFORE = 20  # of them, when two long texts differ, those before the difference
_FEW = 4

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class _Missing(Enum):
    HERE = "here"


# Where a value is: the place of what holds it, and its key or index there. None is the whole.
Place = tuple[Any, str | int] | None
Difference = tuple[Place, Any, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`equal` is None when it cannot be told; then the lines say why. `more` differences have no line."""

    equal: bool | None
    differences: tuple[str, ...] = ()
    more: int = 0


def check_tolerance(value: float) -> float:
    if not 0 <= value < 1:  # NaN, too, is not
        raise InvalidInput("tolerance", f"must be a relative difference from 0 to below 1, such as 1e-9, got {value!r}")
    return value


def compare(first: Any, second: Any, *, tolerance: float = 0.0, most: int = MOST_LINES) -> Comparison:
    lines: list[str] = []
    count = 0
    for difference in _differences(first, second, tolerance):
        count += 1
        if count <= most:
            lines.append(_line(*difference))
    return Comparison(count == 0, tuple(lines), count - len(lines))


def _differences(first: Any, second: Any, tolerance: float) -> Iterator[Difference]:
    levels: list[Iterator[Difference]] = [iter([(None, first, second)])]
    while levels:
        pair = next(levels[-1], None)
        if pair is None:
            levels.pop()
            continue
        place, one, other = pair
        if isinstance(one, dict) and isinstance(other, dict):
            levels.append(_members(place, one, other))
        elif isinstance(one, list) and isinstance(other, list):
            levels.append(_items(place, one, other))
        elif not _same(one, other, tolerance):
            yield pair


def _members(place: Place, first: dict[str, Any], second: dict[str, Any]) -> Iterator[Difference]:
    for key, value in first.items():
        yield (place, key), value, second.get(key, _Missing.HERE)
    for key, value in second.items():
        if key not in first:
            yield (place, key), _Missing.HERE, value


def _items(place: Place, first: list[Any], second: list[Any]) -> Iterator[Difference]:
    for index, (one, other) in enumerate(zip_longest(first, second, fillvalue=_Missing.HERE)):
        yield (place, index), one, other


def _same(first: Any, second: Any, tolerance: float) -> bool:
    if _kind(first) != _kind(second):
        return False
    if first == second:
        return True
    if not isinstance(first, float) and not isinstance(second, float):
        return False
    if first != first or second != second:  # a file that somebody else wrote may have NaN in it
        return bool(first != first and second != second)
    try:
        if tolerance > 0 and math.isclose(first, second, rel_tol=tolerance):
            return True
        # One JSON text of such a number may be read as an integer here and as a float there.
        return max(abs(first), abs(second)) >= 2**53 and canonical_json(first) == canonical_json(second)
    except (OverflowError, InvalidInput):  # an integer beyond every float; an infinity
        return False


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
    return "nothing"


def _line(place: Place, first: Any, second: Any) -> str:
    path = _path(place)
    if second is _Missing.HERE:
        return f"only in the first: {path} = {_shown(first)}"
    if first is _Missing.HERE:
        return f"only in the second: {path} = {_shown(second)}"
    if _kind(first) != _kind(second):
        return f"{path}: {_of_kind(first)} -> {_of_kind(second)}"
    if isinstance(first, str) and max(len(first), len(second)) > SHOWN:
        at = _first_difference(first, second)
        return f"{path}: at character {at:,}: {_around(first, at)} -> {_around(second, at)}"
    return f"{path}: {_number_or_text(first)} -> {_number_or_text(second)}"


def _of_kind(value: Any) -> str:
    """With its kind, unless that is seen."""
    shown = _shown(value)
    return shown if value is None or isinstance(value, bool | dict | list) else f"{shown} ({_kind(value)})"


def _path(place: Place) -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            is_plain = len(step) <= SHOWN and _PLAIN_KEY.fullmatch(step)
            steps.append(f".{step}" if is_plain else f"[{_shortened(step)}]")
    path = "$" + "".join(reversed(steps))
    return path if len(path) <= 2 * LONGEST_PATH else f"{path[:LONGEST_PATH]}…{path[-LONGEST_PATH:]}"


def _shown(value: Any) -> str:
    match value:
        case dict() | list() if len(value) <= _FEW and (text := _if_short(value)) is not None:
            return text
        case dict():
            return f"an object with {len(value):,} {'key' if len(value) == 1 else 'keys'}"
        case list():
            return f"a list of {len(value):,}"
    return _number_or_text(value)


def _if_short(value: dict[str, Any] | list[Any]) -> str | None:
    parts = value.values() if isinstance(value, dict) else value
    if any(isinstance(part, dict | list) or (isinstance(part, str) and len(part) > SHOWN) for part in parts):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else None


def _number_or_text(value: Any) -> str:
    if isinstance(value, str):
        return _shortened(value)
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text.lstrip('-')):,} digits)"


def _shortened(text: str) -> str:
    if len(text) <= SHOWN:
        return json.dumps(text, ensure_ascii=False)
    return f"{json.dumps(text[:SHOWN], ensure_ascii=False)}… ({len(text):,} characters)"


def _first_difference(first: str, second: str) -> int:
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    return min(len(first), len(second))


def _around(text: str, at: int) -> str:
    start = max(0, at - _BEFORE)
    shown = json.dumps(text[start : start + SHOWN], ensure_ascii=False)
    return f"{'…' if start else ''}{shown}{'…' if start + SHOWN < len(text) else ''}"
