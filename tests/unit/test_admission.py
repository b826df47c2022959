"""How many more jobs a limited source lets in: the least of what each of its limits allows."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.admission import SourceStanding


def source(**values: Any) -> SourceStanding:
    usual: dict[str, Any] = {
        "name": "shop",
        "max_concurrent": None,
        "rate_limit_per_minute": None,
        "burst": 1,
        "bucket_level": 1.0,
        "seconds_since": 0.0,
        "half_open": False,
    }
    return SourceStanding(**{**usual, **values})


def test_without_limits_there_is_no_limit() -> None:
    assert source().allowance(1_000, 0) is None
    assert source().level is None


@pytest.mark.parametrize(("most", "in_use", "allowed"), [(3, 0, 3), (3, 2, 1), (3, 3, 0), (3, 7, 0), (0, 0, 0)])
def test_a_number_at_once(most: int, in_use: int, allowed: int) -> None:
    assert source(max_concurrent=most).allowance(in_use, 0) == allowed


@pytest.mark.parametrize(
    ("level", "seconds", "burst", "allowed"),
    [
        (1.0, 0.0, 1, 1),
        (0.0, 0.0, 1, 0),
        (0.0, 0.5, 1, 0),
        (0.0, 1.0, 1, 1),
        (0.0, 100.0, 1, 1),
        (0.0, 3.5, 5, 3),
        (4.0, 100.0, 5, 5),
        (9.0, 0.0, 5, 5),
        (0.5, 0.5, 5, 1),
        (1.0, -30.0, 5, 1),
    ],
)
def test_a_bucket_refills_up_to_its_burst(level: float, seconds: float, burst: int, allowed: int) -> None:
    standing = source(rate_limit_per_minute=60.0, burst=burst, bucket_level=level, seconds_since=seconds)
    assert standing.allowance(0, 0) == allowed


def test_a_token_that_is_due_now_is_not_lost_to_rounding() -> None:
    for rate in (7.0, 13.0, 60.0, 1_000 / 3):
        standing = source(rate_limit_per_minute=rate, bucket_level=0.0, seconds_since=60.0 / rate)
        assert standing.allowance(0, 0) == 1


@pytest.mark.parametrize(("in_use", "probes", "allowed"), [(0, 0, 1), (1, 1, 0), (5, 5, 0), (5, 1, 0), (5, 0, 1)])
def test_a_half_open_breaker_lets_in_one_probe(in_use: int, probes: int, allowed: int) -> None:
    """Beside any number of stragglers from before its pause."""
    assert source(half_open=True).allowance(in_use, probes) == allowed
    assert source(half_open=True, max_concurrent=10).allowance(in_use, probes) == allowed
    assert source(half_open=True, max_concurrent=5).allowance(in_use, probes) == (allowed if in_use < 5 else 0)


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, None),
        ({"max_concurrent": 0}, None),
        ({"half_open": True}, None),
        ({"paused_seconds": 20.0}, 20.0),
        ({"paused_seconds": -20.0}, None),
        ({"rate_limit_per_minute": 60.0}, None),
        ({"rate_limit_per_minute": 60.0, "bucket_level": 0.0}, 1.0),
        ({"rate_limit_per_minute": 600.0, "bucket_level": 0.0, "seconds_since": 0.025}, 0.075),
        ({"rate_limit_per_minute": 60.0, "bucket_level": 0.5, "seconds_since": 0.5}, None),
        ({"rate_limit_per_minute": 60.0, "bucket_level": 0.0, "paused_seconds": 0.4}, 1.0),
        ({"rate_limit_per_minute": 60.0, "bucket_level": 0.0, "paused_seconds": 30.0}, 30.0),
    ],
)
def test_when_time_alone_lets_somebody_in(values: dict[str, Any], seconds: float | None) -> None:
    opens_in = source(**values).opens_in
    assert opens_in is None if seconds is None else opens_in == pytest.approx(seconds)


@given(
    most=st.none() | st.integers(0, 20),
    rate=st.none() | st.floats(0.01, 1e6),
    burst=st.integers(1, 20),
    level=st.floats(0, 20),
    seconds=st.floats(-1e6, 1e6),
    half_open=st.booleans(),
    in_use=st.integers(0, 30),
    probes=st.integers(0, 3),
)
def test_the_tightest_limit_wins(
    most: int | None,
    rate: float | None,
    burst: int,
    level: float,
    seconds: float,
    half_open: bool,
    in_use: int,
    probes: int,
) -> None:
    values: dict[str, Any] = {"burst": burst, "bucket_level": level, "seconds_since": seconds}
    alone = [
        source(max_concurrent=most).allowance(in_use, probes),
        source(rate_limit_per_minute=rate, **values).allowance(in_use, probes),
        source(half_open=half_open).allowance(in_use, probes),
    ]
    together = source(max_concurrent=most, rate_limit_per_minute=rate, half_open=half_open, **values)
    bounds = [bound for bound in alone if bound is not None]
    assert together.allowance(in_use, probes) == (min(bounds) if bounds else None)
    assert all(bound >= 0 and bound <= math.inf for bound in bounds)
