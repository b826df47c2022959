"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.durations import LONGEST_SECONDS, seconds
from holdfast.domain.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        (" 1.5 ", 1.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h30m", 5_400.0),
        ("1h 30m", 5_400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("250ms", 0.25),
        ("1.5h", 5_400.0),
        ("1m1ms", 60.001),
        (timedelta(minutes=2, milliseconds=500), 120.5),
        (timedelta(0), 0.0),
    ],
)
def test_what_people_write_is_understood(written: float | str | timedelta, expected: float) -> None:
    assert seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "soon",
        "10 minutes",
        "10x",
        "-5s",
        "-5",
        "5s ago",
        "1e3",
        "inf",
        "nan",
        "h",
        "1h-30m",
        "10m,",
        -1,
        -0.001,
        float("inf"),
        float("nan"),
        timedelta(seconds=-1),
        True,
        None,
        [],
        b"10m",
        "5300000m",
        LONGEST_SECONDS + 1,
        "9" * 400,
        10**400,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_duration_is_refused_and_the_field_named(written: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        seconds(written, "delay")
    assert caught.value.field == "delay"
    assert len(str(caught.value)) < 1_000


@given(st.floats(0, LONGEST_SECONDS))
def test_a_number_is_seconds(number: float) -> None:
    assert seconds(number) == number


@given(st.integers(0, 1_000), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(hours: int, minutes: int, rest: int) -> None:
    assert seconds(f"{hours}h{minutes}m{rest}s") == hours * 3600 + minutes * 60 + rest


@pytest.mark.timeout(60)
def test_a_long_text_is_refused_quickly() -> None:
    with pytest.raises(InvalidInput):
        seconds("1m " * 20_000 + "x")
    with pytest.raises(InvalidInput):
        seconds("1" * 100_000 + "x")
