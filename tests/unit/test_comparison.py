"""Two results side by side: equal, or lines that say where and how they differ."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.comparison import SHOWN, Comparison, check_tolerance, compare
from holdfast.domain.errors import InvalidInput
from holdfast.domain.spec import canonical_json

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def lines(first: Any, second: Any, **options: Any) -> list[str]:
    found = compare(first, second, **options)
    assert found.equal is (not found.differences)
    return list(found.differences)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1, "b": [1, {"c": None}]}, {"b": [1, {"c": None}], "a": 1}),
        (1, 1.0),
        ([0.0], [-0.0]),
        (10**21, 1e21),
        (295147905179352830000, 295147905179352825856.0),
        (float("nan"), float("nan")),
        (None, None),
        ("", ""),
        ({}, {}),
    ],
)
def test_the_same(first: Any, second: Any) -> None:
    assert compare(first, second) == Comparison(True)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"stats": {"mean": 1.25}}, {"stats": {"mean": 1.31}}, ["$.stats.mean: 1.25 -> 1.31"]),
        ({"x": 5}, {}, ["only in the first: $.x = 5"]),
        ({}, {"x": {"y": []}}, ["only in the second: $.x = an object with 1 key"]),
        ([1, 2, 3], [1, 9], ["$[1]: 2 -> 9", "only in the first: $[2] = 3"]),
        ([], [[1, "a"]], ['only in the second: $[0] = [1, "a"]']),
        ({"a": "5"}, {"a": 5}, ['$.a: "5" (text) -> 5 (a number)']),
        ({"a": True}, {"a": 1}, ["$.a: true -> 1 (a number)"]),
        ({"a": None}, {}, ["only in the first: $.a = null"]),
        ({"a": None}, {"a": 0}, ["$.a: null -> 0 (a number)"]),
        ({"a": {}}, {"a": []}, ["$.a: {} -> []"]),
        ({"a": [1] * 1000}, {"a": "x"}, ['$.a: a list of 1,000 -> "x" (text)']),
        (1, 2, ["$: 1 -> 2"]),
        ({"odd key": {"": 1}, "ü": 1}, {"odd key": {"": 2}, "ü": 2}, ['$["odd key"][""]: 1 -> 2', '$["ü"]: 1 -> 2']),
        ({"a": 'x"\n'}, {"a": "y"}, ['$.a: "x\\"\\n" -> "y"']),
        ({"b": 1, "a": 2}, {"a": 3, "b": 4}, ["$.b: 1 -> 4", "$.a: 2 -> 3"]),
        (float("nan"), 0.5, ["$: NaN -> 0.5"]),
        (float("inf"), 1e308, ["$: Infinity -> 1e+308"]),
        (2**53 + 1, 2**53, ["$: 9007199254740993 -> 9007199254740992"]),
        (2**53 + 1, float(2**53), ["$: 9007199254740993 -> 9007199254740992.0"]),
    ],
)
def test_a_difference_says_where_and_what(first: Any, second: Any, expected: list[str]) -> None:
    assert lines(first, second) == expected


def test_long_texts_are_shown_where_they_differ() -> None:
    first, second = "a" * 500 + "b" + "c" * 500, "a" * 500 + "d" + "c" * 500
    [line] = lines({"page": first}, {"page": second})
    assert line.startswith("$.page: at character 500: …")
    assert '"aaaaaaaaaaaaaaaaaaaab' in line
    assert '"aaaaaaaaaaaaaaaaaaaad' in line
    assert len(line) < 4 * SHOWN
    [line] = lines("x" * 100, "x" * 99)
    assert line.startswith("$: at character 99: …")


def test_no_value_makes_a_long_line() -> None:
    huge = {"a" * 10_000: "b" * 10_000, "n": 10**1000, "l": [["c" * 10_000]]}
    found = lines(huge, {"n": -(10**1000), "l": 1})
    assert len(found) == 3
    assert all(len(line) < 300 for line in found), found
    assert "(10,000 characters)" in found[0]
    assert "(1,001 digits)" in found[1]


def test_of_many_differences_the_first_are_told_and_all_counted() -> None:
    found = compare(list(range(1_000)), [-1 - n for n in range(1_000)], most=5)
    assert found.differences == tuple(f"$[{n}]: {n} -> {-1 - n}" for n in range(5))
    assert (found.equal, found.more) == (False, 995)


def test_numbers_within_a_relative_tolerance() -> None:
    assert lines({"m": 1.0}, {"m": 1.0 + 1e-12}, tolerance=1e-9) == []
    assert lines({"m": 1e300}, {"m": 1e300 * (1 + 1e-12)}, tolerance=1e-9) == []
    assert lines({"m": 1.0}, {"m": 1.0 + 1e-6}, tolerance=1e-9) != []
    assert lines({"m": 1.0}, {"m": 1.0 + 1e-12}) != [], "exactly, unless asked otherwise"
    assert lines({"m": 2}, {"m": 2.0000000001}, tolerance=1e-9) == [], "a mean may happen to be whole"
    assert lines({"m": 0.0}, {"m": 1e-300}, tolerance=1e-9) != [], "relative to nothing is nothing"


def test_integers_are_exact_whatever_the_tolerance() -> None:
    one, two = 1_541_815_603_606_036_480, 1_541_815_603_606_036_481
    assert lines({"id": one}, {"id": two}, tolerance=0.5) == [f"$.id: {one} -> {two}"]
    assert lines([10**400], [1.5], tolerance=0.5) != []


@pytest.mark.parametrize("tolerance", [-1e-9, 1.0, 5, float("nan"), float("inf")])
def test_a_tolerance_has_bounds(tolerance: float) -> None:
    with pytest.raises(InvalidInput, match="relative"):
        check_tolerance(tolerance)


def test_however_deep() -> None:
    first: Any = 1
    second: Any = 2
    for _ in range(5_000):
        first, second = [first], [second]
    [line] = lines(first, second)
    assert line.endswith("[0]: 1 -> 2")
    assert len(line) < 300


@given(json_values, json_values)
def test_it_agrees_with_the_canonical_text(first: Any, second: Any) -> None:
    """Only numbers that RFC 8785 writes in two ways (10**21 and 1e21) are one value here and two texts there."""
    found = compare(first, second)
    if canonical_json(first) == canonical_json(second):
        assert found.equal
    elif found.equal:
        assert first == second
    assert compare(first, json.loads(json.dumps(first))).equal
    assert compare(second, first).equal is found.equal
