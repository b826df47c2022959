"""Keys of records: what is the same gets the same one, what is not does not, and nothing makes it fall over.

The vectors are for other implementations, too: within a group all keys are alike, between groups none are.
"""

import decimal
import hashlib
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.domain.dedupe import LONGEST_TITLE, LONGEST_URL, dedupe_key
from holdfast.domain.errors import InvalidInput
from holdfast.domain.web_address import normal_address

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("dedupe_vectors.json").read_text(encoding="utf-8"))

# Made of what addresses are made of, so that many of them are nearly some.
pieces = [*"htps:/?#[]@%.\\-~ aA1é\u0301ß\u202e\x00\n", "http://", "https://a.b", "%41", "/..", "\ud800"]
hostile = st.lists(st.sampled_from(pieces), max_size=20).map("".join)
anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.decimals() | st.dates()


@pytest.mark.parametrize("group", VECTORS["groups"], ids=lambda group: group["why"])
def test_what_is_the_same_has_the_same_key(group: dict[str, Any]) -> None:
    assert {dedupe_key(data) for data in group["data"]} == {group["key"]}


def test_what_is_not_the_same_has_another_key() -> None:
    keys = [group["key"] for group in VECTORS["groups"]]
    assert len(set(keys)) == len(keys) >= 40


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: f"{vector['field']}-{vector['data']!r:.40}")
def test_what_makes_no_sense_is_refused_by_name(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        dedupe_key(vector["data"])
    assert refused.value.field == vector["field"]


@pytest.mark.parametrize("vector", VECTORS["external"])
def test_an_external_id_is_the_key(vector: dict[str, Any]) -> None:
    assert dedupe_key({"title": "x"}, vector["external_id"]) == vector["key"] == f"ext_{vector['external_id']}"
    assert dedupe_key(None, vector["external_id"]) == vector["key"], "and then nothing else is looked at"


@pytest.mark.parametrize("wrong", ["", "  ", "a" * 201, "a\x00", "a\nb", "\u202eabc", "\ud800", 7, b"7"])
def test_a_wrong_external_id_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        dedupe_key({"title": "x"}, wrong)
    assert refused.value.field == "external_id"


def test_the_hash_is_of_canonical_json() -> None:
    data = {
        "url": "HTTPS://Example.com/Coins/7?s=1",
        "title": " 1881-S  Morgan ",
        "price": "19.90",
        "day": "2030-01-31T08:00Z",
        "price_type": "SOLD",
    }
    canonical = b'["https://example.com/Coins/7","1881-s morgan",1990,"2030-01-31","sold"]'
    assert dedupe_key(data) == f"hash_{hashlib.sha256(canonical).hexdigest()[:16]}"
    absent = b'[null,"1881-s morgan",null,null,null]'
    assert dedupe_key({"title": "1881-S Morgan"}) == f"hash_{hashlib.sha256(absent).hexdigest()[:16]}"


def test_it_is_a_name_of_the_package() -> None:
    assert holdfast.dedupe_key is dedupe_key


def test_values_that_only_python_has() -> None:
    class Kind(StrEnum):
        SOLD = "sold"

    far = timezone(timedelta(hours=14))
    for price in (19.9, Decimal("19.90"), Decimal("19.9"), Decimal("1990E-2")):
        for day in (date(2030, 1, 31), datetime(2030, 1, 31, 23, 59, tzinfo=far), datetime(2030, 1, 31, tzinfo=UTC)):
            data = MappingProxyType({"title": "x", "price": price, "sold_at": day, "price_type": Kind.SOLD})
            assert dedupe_key(data) == dedupe_key(
                {"title": "x", "price_cents": 1990, "day": "2030-01-31", "price_type": "sold"}
            )


@pytest.mark.parametrize(
    "price", [float("nan"), float("inf"), -float("inf"), *map(Decimal, ("NaN", "sNaN", "Infinity", "-1", "1E+999999"))]
)
def test_a_price_that_is_none_is_refused(price: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        dedupe_key({"title": "x", "price": price})
    assert refused.value.field == "price"


def test_the_caller_s_decimal_context_counts_for_nothing() -> None:
    expected = dedupe_key({"title": "x", "price": Decimal("123456.785")})
    with decimal.localcontext(decimal.Context(prec=2, rounding=decimal.ROUND_DOWN, traps=[decimal.Inexact])):
        assert dedupe_key({"title": "x", "price": Decimal("123456.785")}) == expected
        assert dedupe_key({"title": "x", "price_cents": 12345679}) == expected
    assert dedupe_key({"title": "x", "price": Decimal("1E-999999")}) == dedupe_key({"title": "x", "price": 0})


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("url", {"url": "https://example.com/" + "a" * 1_000_000}),
        ("url", {"url": "a" * (LONGEST_URL + 1)}),
        ("title", {"title": "e\u0301\u0327" * 500_000}),
        ("title", {"title": "a" * (LONGEST_TITLE + 1)}),
        ("price", {"title": "x", "price": "9" * 1_000_000}),
        ("price", {"title": "x", "price": 10**100_000}),
        ("price_cents", {"title": "x", "price_cents": 10**100_000}),
        ("day", {"title": "x", "day": "2030-01-31" + "T" * 1_000_000}),
        ("price_type", {"title": "x", "price_type": "s" * 1_000_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_too_long_is_refused_and_not_repeated(field: str, data: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        dedupe_key(data)
    assert refused.value.field == field
    assert len(str(refused.value)) < 300


def test_the_longest_that_is_taken() -> None:
    accents = "a" + "\u0301\u0327" * ((LONGEST_TITLE - 1) // 2)
    for data in (
        {"title": accents},
        {"url": "https://" + "é" * 60 + ".example/" + "%" * 8000},
        {"url": "/" * LONGEST_URL},
    ):
        assert dedupe_key(data).startswith("hash_")


@given(hostile)
def test_a_normal_address_is_its_own(text: str) -> None:
    """So that nothing that counts as it is written can be one: it would have had a normal form."""
    try:
        dedupe_key({"url": text, "title": "x"})
    except InvalidInput:
        return
    normal = normal_address(text.strip())
    if normal is not None:
        assert normal_address(normal) == normal
        assert normal.isascii()
        assert dedupe_key({"url": normal, "title": "x"}) == dedupe_key({"url": text, "title": "x"})


def test_a_title_in_lower_case_is_the_same_title() -> None:
    """Of every character that has a lower case, alone and before an accent."""
    cased = [chr(code) for code in range(0x110000) if chr(code).lower() != chr(code)]
    assert len(cased) > 1_000
    for character in cased:
        for text in (character, f"{character}\u0307", f"{character}\u0327\u0301"):
            assert dedupe_key({"title": text}) == dedupe_key({"title": text.lower()}), hex(ord(character))


@given(
    st.dictionaries(st.sampled_from(["url", "title", "price", "price_cents", "day", "sold_at", "price_type"]), anything)
)
def test_anything_has_a_key_or_is_refused(data: dict[str, Any]) -> None:
    try:
        key = dedupe_key(data)
    except InvalidInput:
        return
    assert key == dedupe_key(dict(reversed(data.items()))), "in any order"
    assert dedupe_key({**data, "grade": "MS65"}) == key, "and whatever else there is"
