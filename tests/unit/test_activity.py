"""Histograms and steps of the roll-up: what can be said of durations once only their buckets are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.activity import RUN_BOUNDS, WAIT_BOUNDS, Spread, Step, bucket, merged

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
DURATIONS = st.lists(st.floats(min_value=0.0, max_value=200_000.0), max_size=50)


def test_bounds_grow_from_a_millisecond_to_a_day() -> None:
    for bounds in (WAIT_BOUNDS, RUN_BOUNDS):
        assert bounds[0] == 0.001
        assert bounds[-1] == 86_400.0
        assert list(bounds) == sorted(set(bounds))


def test_a_bucket_begins_with_its_lower_bound() -> None:
    assert bucket(0.0) == 0
    assert bucket(0.0009) == 0
    assert bucket(0.001) == 1
    assert bucket(1e9) == len(WAIT_BOUNDS)


def test_nothing_has_no_percentile() -> None:
    assert Spread().total == 0
    assert Spread().percentile(0.5) is None


def test_a_percentile_is_interpolated_within_its_bucket() -> None:
    spread = Spread((1.0, 2.0, 4.0), (0, 4, 0, 0))
    assert spread.percentile(0.0) == 1.0
    assert spread.percentile(0.5) == 1.5
    assert spread.percentile(1.0) == 2.0


def test_of_what_is_beyond_the_last_bound_only_the_bound_is_known() -> None:
    assert Spread((1.0, 2.0), (0, 0, 7)).percentile(0.5) == 2.0


@given(DURATIONS.filter(bool), st.floats(min_value=0.01, max_value=1.0))
def test_so_many_are_at_most_as_long_as_a_percentile_says_but_for_its_bucket(
    durations: list[float], share: float
) -> None:
    found = Spread.of(durations).percentile(share)
    assert found is not None
    upper = next((bound for bound in WAIT_BOUNDS if bound >= found), WAIT_BOUNDS[-1])
    shorter = sum(1 for one in durations if one < upper or upper == WAIT_BOUNDS[-1])
    assert shorter >= share * len(durations) - 1e-6
    below = sum(1 for one in durations if bucket(one) < bucket(found, WAIT_BOUNDS) - 1)
    assert below <= share * len(durations) + 1e-6


@given(DURATIONS, DURATIONS)
def test_the_sum_of_two_is_the_spread_of_both(some: list[float], others: list[float]) -> None:
    added = Spread.of(some) + Spread.of(others)
    assert added.counts == Spread.of(some + others).counts


def test_histograms_over_other_bounds_are_not_added() -> None:
    with pytest.raises(ValueError, match="different bounds"):
        Spread((1.0,), (1,)) + Spread((2.0,), (1,))


def test_merged_steps_are_summed_and_keep_the_last_depth_that_somebody_saw() -> None:
    steps = [
        Step(NOON, enqueued=2, started=1, ready=5, scheduled=1, running=1, oldest_seconds=3.0, wait=Spread.of([0.5])),
        Step(NOON + timedelta(minutes=1), enqueued=3, ready=0, scheduled=0, running=2, run=Spread.of([2.0])),
        Step(NOON + timedelta(minutes=2), failed=1, wait=Spread.of([0.5, 7.0])),
    ]
    whole = merged(steps)
    assert (whole.at, whole.enqueued, whole.started, whole.failed) == (NOON, 5, 1, 1)
    assert (whole.ready, whole.scheduled, whole.running, whole.oldest_seconds) == (0, 0, 2, None)
    assert whole.wait.counts == Spread.of([0.5, 0.5, 7.0]).counts
    assert whole.run.total == 1


def test_steps_at_whose_time_nobody_looked_have_no_depth() -> None:
    assert merged([Step(NOON), Step(NOON + timedelta(minutes=1))]).ready is None


def test_there_is_nothing_to_merge_in_nothing() -> None:
    with pytest.raises(ValueError, match="no step"):
        merged([])
