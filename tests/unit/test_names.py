"""Small values that callers hand in: each refusal names the field and the rule."""

import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_id, check_integer, check_moment, check_name

CANONICAL = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize("name", ["a", "billing.charge", "über straße", "日本", "😀", "x" * 200, "a'b\"c\\d", "%s{}"])
def test_a_name_may_be_anything_that_can_be_printed(name: str) -> None:
    assert check_name(name, "queue") == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "must not be empty"),
        ("   ", "must not be empty"),
        ("x" * 201, "at most 200 characters, got 201"),
        ("a\x00b", "control characters"),
        ("a\nb", "control characters"),
        ("a\tb", "control characters"),
        ("a\x7fb", "control characters"),
        ("\ud800", "surrogates"),
        (None, "must be a string, got NoneType"),
        (7, "must be a string, got int"),
        (b"queue", "must be a string, got bytes"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_name_that_cannot_be_is_refused(name: Any, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_name(name, "queue")
    assert caught.value.field == "queue"
    assert rule in caught.value.rule


@pytest.mark.parametrize("value", [-100, 0, 100])
def test_a_whole_number_within_its_bounds(value: int) -> None:
    assert check_integer(value, "priority", -100, 100) == value


@pytest.mark.parametrize("value", [-101, 101, 10**100, True, False, 1.0, "1", None])
def test_any_other_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        check_integer(value, "priority", -100, 100)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=14))])
def test_a_moment_has_a_time_zone(zone: timezone) -> None:
    moment = datetime(2030, 1, 1, tzinfo=zone)
    assert check_moment(moment, "run_after") == moment


@pytest.mark.parametrize("value", [datetime.fromisoformat("2030-01-01"), "2030-01-01T00:00:00Z", 0, None])
def test_any_other_moment_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="run_after"):
        check_moment(value, "run_after")


@pytest.mark.parametrize(
    "value", [CANONICAL, CANONICAL.upper(), CANONICAL.replace("-", ""), f"{{{CANONICAL}}}", uuid.UUID(CANONICAL)]
)
def test_an_id_is_brought_into_one_form(value: Any) -> None:
    assert check_id(value) == CANONICAL


@pytest.mark.parametrize("value", ["", "job-1", CANONICAL[:-1], CANONICAL + "0", None, 7, b"x", [CANONICAL], "\x00"])
def test_what_is_no_id_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="id: must be a UUID"):
        check_id(value)


@given(st.text(max_size=100))
def test_any_text_is_a_good_name_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert check_name(text, "queue") == text
        assert text.encode()


@given(st.text(max_size=100))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        canonical = check_id(text)
        assert canonical == str(uuid.UUID(text))
