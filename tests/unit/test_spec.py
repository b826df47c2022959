"""Canonical JSON and the identity of a run: RFC 8785, with integers of any size in plain decimal."""

import hashlib
import json
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import NewJob
from holdfast.domain.json_text import parse
from holdfast.domain.spec import (
    MAX_DEPTH,
    _canonical,
    canonical_json,
    canonical_spec,
    check_json,
    encode_json,
    identified,
    spec_hash,
)
from tests.unit.vectors import FILE, REFUSED, VECTORS, Refused, Vector

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


# The shared vectors


def test_there_are_enough_of_them_and_each_is_another_spec() -> None:
    assert len(VECTORS) >= 40
    assert len({vector.name for vector in VECTORS}) == len(VECTORS)
    assert len({vector.canonical for vector in VECTORS}) == len(VECTORS) - 1, "white space around it means nothing"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_vector_is_hashed_as_written(vector: Vector) -> None:
    assert hashlib.sha256(vector.canonical.encode()).hexdigest() == vector.spec_hash, "the file itself is wrong"
    assert canonical_spec(vector.task, vector.version, vector.value) == vector.canonical
    assert vector.new_job().spec_hash == vector.spec_hash
    assert parse(vector.payload.encode(), MAX_DEPTH) == vector.value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_canonical_text_is_its_own_canonical_text(vector: Vector) -> None:
    again = json.loads(vector.canonical)
    assert canonical_spec(again["task"], again["version"], again["payload"]) == vector.canonical


def test_the_vectors_of_the_documentation_are_among_them() -> None:
    shown = [vector for vector in VECTORS if vector.name.endswith("of docs/identity.md")]
    text = (FILE.parents[2] / "docs" / "identity.md").read_text(encoding="utf-8")
    assert len(shown) == 2
    for vector in shown:
        for part in (f"`{vector.payload}`", f"`{vector.canonical}`", f"`{vector.spec_hash}`"):
            assert part in text


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.name)
def test_a_text_that_is_no_payload_is_refused_by_its_rule(refused: Refused) -> None:
    with pytest.raises(InvalidInput) as caught:
        NewJob(task="run", payload=parse(refused.payload.encode(), MAX_DEPTH, "payload"))
    assert caught.value.field == refused.field
    assert refused.rule in caught.value.rule


# RFC 8785


def test_the_example_of_the_rfc() -> None:
    value = json.loads(
        r"""{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"""
    )
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_the_order_of_keys_in_the_rfc() -> None:
    """By UTF-16 code unit: an astral character, whose first unit is a surrogate, goes before U+FB33."""
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical_json(value))) == ["\r", "1", "\u0080", "ö", "€", "\U0001f600", "\ufb33"]
    assert sorted(value) != list(json.loads(canonical_json(value))), "which is not the order of code points"


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_keys_are_ordered_at_every_depth(depth: int) -> None:
    value: Any = {"\ufb33": 1, "\U0001f600": 2, "b": 3, "a": 4}
    expected = '{"a":4,"b":3,"\U0001f600":2,"\ufb33":1}'
    for _ in range(depth):
        value, expected = {"in": [value]}, f'{{"in":[{expected}]}}'
    assert canonical_json(value).decode() == expected


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_the_numbers_of_the_rfc(bits: str, text: str) -> None:
    [number] = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json([number]).decode() == f"[{text}]"


@pytest.mark.parametrize("number", [0, -1, 2**53, 2**53 + 1, -(2**64), 10**30, 1_541_815_603_606_036_480])
def test_integers_of_any_size_are_plain_decimal(number: int) -> None:
    assert canonical_json({"id": number}) == f'{{"id":{number}}}'.encode()
    assert canonical_json({"id": number, "f": 0.5}) == f'{{"f":0.5,"id":{number}}}'.encode()


def test_two_snowflakes_do_not_share_a_hash() -> None:
    one, two = 1_541_815_603_606_036_480, 1_541_815_603_606_036_481
    assert float(one) == float(two)
    assert spec_hash("t", None, {"id": one}) != spec_hash("t", None, {"id": two})


def test_a_float_that_is_whole_is_the_integer() -> None:
    assert spec_hash("t", None, {"n": 2.0}) == spec_hash("t", None, {"n": 2})
    assert spec_hash("t", None, {"n": -0.0}) == spec_hash("t", None, {"n": 0})


def test_true_is_not_one() -> None:
    assert spec_hash("t", None, {"n": True}) != spec_hash("t", None, {"n": 1})


@given(json_values)
def test_the_fast_way_is_the_slow_way(value: Any) -> None:
    assert canonical_json(value) == _canonical(value).encode()


@given(st.dictionaries(texts, st.integers() | texts | st.booleans() | st.none()))
def test_the_fast_way_is_the_slow_way_for_plain_payloads(value: dict[str, Any]) -> None:
    assert canonical_json(value) == _canonical(value).encode()


@given(st.dictionaries(texts, json_values | st.integers() | texts))
def test_hash_and_text_at_once_are_hash_and_text(payload: dict[str, Any]) -> None:
    assert identified("t", "1", payload) == (spec_hash("t", "1", payload), encode_json(payload))


small_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


@given(small_values)
def test_within_the_rfc_s_numbers_it_is_the_rfc(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(json_values)
def test_canonical_text_is_canonical(value: Any) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(texts, json_values), st.randoms(use_true_random=False))
def test_the_order_of_a_payload_does_not_matter(payload: dict[str, Any], random: Any) -> None:
    shuffled = list(payload.items())
    random.shuffle(shuffled)
    assert spec_hash("t", None, dict(shuffled)) == spec_hash("t", None, payload)


@given(st.dictionaries(texts, json_values))
def test_a_payload_read_back_has_the_hash_it_was_stored_under(payload: dict[str, Any]) -> None:
    check_json(payload, "payload")
    assert spec_hash("t", None, json.loads(encode_json(payload))) == spec_hash("t", None, payload)


def test_the_hash_is_sha_256_of_the_canonical_spec() -> None:
    text = '{"payload":{"a":1,"b":[true,null,"ü"]},"task":"add","version":"2"}'
    assert spec_hash("add", "2", {"b": [True, None, "ü"], "a": 1}) == hashlib.sha256(text.encode()).hexdigest()


def test_the_hash_never_changes() -> None:
    """Stored in every database there is; a different value here would orphan all of them."""
    assert spec_hash("add", None, {}) == hashlib.sha256(b'{"payload":{},"task":"add","version":null}').hexdigest()
    assert spec_hash("add", None, {"a": 1, "b": 2.5}) == EVER


EVER = "9f6720922ae7514069a746148c1c9e134467d328b4aab09434fe3a8e61fce597"


def test_task_version_and_payload_each_count() -> None:
    hashes = {
        spec_hash("add", None, {}),
        spec_hash("sub", None, {}),
        spec_hash("add", "1", {}),
        spec_hash("add", "", {}),
        spec_hash("add", None, {"a": None}),
        spec_hash("add", None, {"a": "None"}),
    }
    assert len(hashes) == 6


def test_a_tuple_is_a_list() -> None:
    assert canonical_json({"x": (1, 2)}) == canonical_json({"x": [1, 2]})


class Odd(dict[str, int]):
    pass


@pytest.mark.parametrize(
    ("value", "field", "rule"),
    [
        (float("nan"), "x", "NaN"),
        ({"a": float("inf")}, "x.a", "infinities"),
        ({"a": [1, {"b": -float("inf")}]}, "x.a[1].b", "infinities"),
        ("a\x00", "x", "NUL"),
        ({"a\x00": 1}, "x", "NUL"),
        ("\ud83d", "x", "surrogate"),
        ("\ude00\ud83d", "x", "surrogate"),
        ({"\ud83d": 1}, "x", "surrogate"),
        ({1: 2}, "x", "must be strings, got 1"),
        ({None: 2}, "x", "must be strings, got None"),
        ({"a": {1, 2}}, "x.a", "set"),
        (b"bytes", "x", "bytes"),
        (1j, "x", "complex"),
        (object(), "x", "object"),
        (Odd(a=1), "x", "Odd"),
        (10**5_000, "x", "digits"),
        ({"a": [-(10**5_000)]}, "x.a[0]", "digits"),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, str | bytes | float) else type(value).__name__,
)
def test_what_json_or_a_store_cannot_hold_is_refused_by_its_place(value: Any, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_json(value, "x")
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_a_spec_names_the_place_in_the_payload() -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_hash("add", None, {"a": [float("nan")]})
    assert caught.value.field == "payload.a[0]"


def test_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert check_json(deep, "x") is True
    for _ in range(10):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper than 64 levels"):
        check_json(deep, "x")


def test_an_integer_of_four_thousand_digits_is_accepted() -> None:
    number = 10**4_200
    assert canonical_json([number]) == f"[{number}]".encode()
