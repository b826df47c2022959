"""Retry policies: exponential, linear, fixed; exact without jitter; never beyond the cap."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidInput
from holdfast.domain.retry import DEFAULT_RETRY, KINDS, Kind, RetryPolicy


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("exponential", [10, 20, 40, 80, 160, 320]),
        ("linear", [10, 20, 30, 40, 50, 60]),
        ("fixed", [10, 10, 10, 10, 10, 10]),
    ],
)
def test_without_jitter_the_waits_are_exact(kind: Kind, expected: list[float]) -> None:
    policy = RetryPolicy(kind, jitter=0.0)
    for random in (0.0, 0.3, 0.999):
        assert [policy.delay(failures, random) for failures in range(1, 7)] == expected


def test_the_default_is_ten_seconds_doubled_give_or_take_a_fifth_up_to_a_day() -> None:
    assert RetryPolicy("exponential", 10.0, 0.2, 86_400.0) == DEFAULT_RETRY
    assert DEFAULT_RETRY.delay(1, 0.0) == 8.0
    assert DEFAULT_RETRY.delay(1, 0.5) == 10.0
    assert DEFAULT_RETRY.delay(1, 0.75) == pytest.approx(11.0)
    assert DEFAULT_RETRY.delay(50, 0.5) == 86_400.0


@given(
    kind=st.sampled_from(KINDS),
    base=st.floats(0, 86_400),
    jitter=st.floats(0, 1),
    cap=st.floats(0, 86_400),
    failures=st.integers(0, 10**9),
    random=st.floats(0, 1, exclude_max=True),
)
def test_no_wait_is_negative_or_beyond_its_cap(
    kind: Kind, base: float, jitter: float, cap: float, failures: int, random: float
) -> None:
    assert 0.0 <= RetryPolicy(kind, base, jitter, cap).delay(failures, random) <= cap


@given(kind=st.sampled_from(KINDS), base=st.floats(0.001, 1_000), failures=st.integers(1, 60))
def test_waits_never_grow_shorter(kind: Kind, base: float, failures: int) -> None:
    policy = RetryPolicy(kind, base, jitter=0.0)
    assert policy.delay(failures, 0.5) <= policy.delay(failures + 1, 0.5)


def test_a_policy_survives_being_stored() -> None:
    for policy in (
        DEFAULT_RETRY,
        RetryPolicy("linear", 3.5, 0.0, 60.0),
        RetryPolicy("fixed", 0.0, 1.0, 0.0),
        RetryPolicy(snooze_limit=0.0),
    ):
        assert RetryPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
    assert RetryPolicy.from_json(None) == DEFAULT_RETRY
    assert RetryPolicy.from_json({}) == DEFAULT_RETRY


def test_people_write_durations() -> None:
    assert RetryPolicy.from_json({"base": "2m", "cap": "1h"}) == RetryPolicy(base=120.0, cap=3_600.0)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "random"}, "retry.kind"),
        ({"kind": None}, "retry.kind"),
        ({"kind": ["fixed"]}, "retry.kind"),
        ({"base": -1}, "retry.base"),
        ({"base": 86_401}, "retry.base"),
        ({"base": float("nan")}, "retry.base"),
        ({"base": "often"}, "retry.base"),
        ({"base": True}, "retry.base"),
        ({"base": 10**400}, "retry.base"),
        ({"jitter": -0.1}, "retry.jitter"),
        ({"jitter": 1.1}, "retry.jitter"),
        ({"jitter": float("nan")}, "retry.jitter"),
        ({"jitter": "some"}, "retry.jitter"),
        ({"jitter": 10**400}, "retry.jitter"),
        ({"cap": "2d"}, "retry.cap"),
        ({"basis": 1}, "retry"),
        ([], "retry"),
        ("fixed", "retry"),
        (5, "retry"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_policy_that_cannot_be_is_refused_by_name(data: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy.from_json(data)
    assert caught.value.field == field
