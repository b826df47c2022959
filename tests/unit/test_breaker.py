"""Which ending moves which breaker where."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.breaker import (
    Ending,
    Failure,
    Rules,
    Standing,
    Success,
    Throttled,
    matters,
    move,
)
from holdfast.domain.sources import Breaker, PausedBy

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
RULES = Rules(threshold=5, pause_seconds=300.0)
FAILED = Failure("Timeout", job_id="job")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def paused(seconds: float, by: PausedBy, streak: int = 0) -> Standing:
    return Standing(failure_streak=streak, paused_until=after(seconds), paused_by=by)


OPEN = paused(100, PausedBy.BREAKER, 5)
HALF_OPEN = paused(-1, PausedBy.BREAKER, 5)


@pytest.mark.parametrize(
    ("standing", "state"),
    [
        (Standing(), Breaker.CLOSED),
        (Standing(failure_streak=4), Breaker.CLOSED),
        (Standing(failure_streak=5), Breaker.HALF_OPEN),
        (OPEN, Breaker.OPEN),
        (paused(0, PausedBy.BREAKER, 5), Breaker.HALF_OPEN),
        (HALF_OPEN, Breaker.HALF_OPEN),
        (paused(100, PausedBy.OPERATOR), Breaker.CLOSED),
        (paused(100, PausedBy.OPERATOR, 5), Breaker.OPEN),
        (paused(100, PausedBy.RETRY_AFTER, 5), Breaker.OPEN),
        (paused(100, PausedBy.BREAKER, 4), Breaker.OPEN),  # its threshold was raised meanwhile
    ],
)
def test_the_state_of_a_breaker_follows_from_its_streak_and_its_pause(standing: Standing, state: Breaker) -> None:
    assert standing.breaker(5, NOW) is state


@pytest.mark.parametrize(
    ("before", "ending", "streak", "until", "by", "event"),
    [
        # closed
        (Standing(), Success(), 0, None, None, None),
        (Standing(failure_streak=4), Success(), 0, None, None, None),
        (Standing(failure_streak=3), FAILED, 4, None, None, None),
        (Standing(failure_streak=4), FAILED, 5, 300, "breaker", "breaker_opened"),
        # open: stragglers move nothing
        (OPEN, Success(), 5, 100, "breaker", None),
        (OPEN, FAILED, 5, 100, "breaker", None),
        # half open
        (HALF_OPEN, Success(), 0, None, None, "breaker_closed"),
        (HALF_OPEN, FAILED, 6, 300, "breaker", "breaker_opened"),
        # Retry-After is no failure, and shortens no pause
        (Standing(failure_streak=2), Throttled(60), 2, 60, "retry_after", "throttled"),
        (OPEN, Throttled(60), 5, 100, "breaker", None),
        (OPEN, Throttled(160), 5, 160, "retry_after", "throttled"),
        (paused(100, PausedBy.OPERATOR), Throttled(60), 0, 100, "operator", None),
        (paused(-1, PausedBy.OPERATOR), Throttled(60), 0, 60, "retry_after", "throttled"),
        (Standing(), Throttled(1e6), 0, 86_400, "retry_after", "throttled"),
        (Standing(), Throttled(0), 0, None, None, None),
        # an operator's pause outlasts a breaker that opens meanwhile
        (paused(1000, PausedBy.OPERATOR, 4), FAILED, 5, 1000, "operator", "breaker_opened"),
        (paused(1000, PausedBy.OPERATOR, 5), Success(), 5, 1000, "operator", None),
    ],
)
def test_what_an_ending_does(
    before: Standing, ending: Ending, streak: int, until: float | None, by: str | None, event: str | None
) -> None:
    moved = move(before, RULES, ending, NOW)
    assert moved.standing.failure_streak == streak
    assert moved.standing.paused_until == (None if until is None else after(until))
    assert moved.standing.paused_by == by
    assert (moved.happened.event if moved.happened else None) == event


def test_the_last_success_and_failure_are_noted_also_while_it_is_open() -> None:
    for standing in (Standing(), OPEN, HALF_OPEN):
        assert move(standing, RULES, Success(), NOW).standing.last_success_at == NOW
        assert move(standing, RULES, FAILED, NOW).standing.last_failure_at == NOW
    assert move(Standing(), RULES, Throttled(5), NOW).standing.last_failure_at is None


def test_an_opened_breaker_says_why() -> None:
    moved = move(Standing(failure_streak=4), RULES, FAILED, NOW)
    assert moved.happened is not None
    assert moved.happened.detail == {"streak": 5, "code": "Timeout", "job_id": "job", "paused_until": after(300)}
    probed = move(HALF_OPEN, RULES, FAILED, NOW)
    assert probed.happened is not None
    assert probed.happened.detail["probe"] is True


@pytest.mark.parametrize(
    ("rules", "code", "retryable", "counts"),
    [
        (Rules(), "Timeout", True, True),
        (Rules(), "Timeout", False, True),
        (Rules(counts_permanent=False), "Timeout", True, True),
        (Rules(counts_permanent=False), "Timeout", False, False),
        (Rules(only=("Timeout",)), "Timeout", True, True),
        (Rules(only=("Timeout",)), "ValueError", True, False),
        (Rules(only=()), "Timeout", True, False),
        (Rules(ignores=("ValueError",)), "ValueError", True, False),
        (Rules(ignores=("ValueError",)), "Timeout", True, True),
        (Rules(only=("Timeout",), ignores=("Timeout",)), "Timeout", True, False),
    ],
)
def test_which_failures_count(rules: Rules, code: str, retryable: bool, counts: bool) -> None:
    failure = Failure(code, retryable)
    assert rules.counts(code, retryable=retryable) is counts
    assert matters(Standing(), rules, failure, NOW) is counts
    assert (move(Standing(), rules, failure, NOW).standing == Standing()) is not counts


def test_a_success_in_a_calm_source_is_noted_once_a_second() -> None:
    assert matters(Standing(), RULES, Success(), NOW), "never noted"
    assert not matters(Standing(last_success_at=after(-1)), RULES, Success(), NOW)
    assert matters(Standing(last_success_at=after(-1.1)), RULES, Success(), NOW)
    assert matters(Standing(failure_streak=1, last_success_at=NOW), RULES, Success(), NOW)
