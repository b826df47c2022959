"""How many at once and how many a minute, to the microsecond."""

import pytest

from holdfast.torture.checker.expectations import LimitedSource
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life
from holdfast.torture.checker.limits import Lease, check_concurrency, check_rate, leases_of
from tests.verify.lives import JOB
from tests.verify.lives import Life as Lived


def at(seconds: float) -> str:
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"2030-01-01T{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{micros:06d}Z"


def lease(job: str, began: float, ended: float | None = None, length: int = 3) -> Lease:
    return Lease(job, at(began), None if ended is None else at(ended), length)


def at_once(most: int, *leases: Lease) -> Findings:
    found = Findings()
    check_concurrency("source shop", leases, most, found)
    return found


def started(rate: float, burst: int, *moments: float) -> Findings:
    found = Findings()
    source = LimitedSource("shop", rate_limit_per_minute=rate, burst=burst)
    check_rate(source, [lease(f"job {number}", moment) for number, moment in enumerate(moments)], found)
    return found


def rules(found: Findings) -> set[str]:
    return set(found.shortest)


# At once


def test_as_many_as_the_limit_are_allowed() -> None:
    assert not rules(at_once(2, lease("a", 0, 9), lease("b", 1, 9), lease("c", 9, 10)))


def test_one_more_for_a_microsecond_is_not() -> None:
    found = at_once(2, lease("a", 0, 9), lease("b", 1, 9), lease("c", 8.999999, 10))
    assert rules(found) == {"over_limit"}
    assert found.shortest["over_limit"].jobs == ("c", "a", "b")


def test_a_lease_that_never_ended_is_held() -> None:
    assert rules(at_once(1, lease("a", 0), lease("b", 500, 501))) == {"over_limit"}


def test_a_job_that_is_lost_and_claimed_again_at_once_is_one() -> None:
    assert not rules(at_once(1, lease("a", 0, 9), lease("a", 9, 10)))


def test_a_lease_that_took_no_time_is_in_nobody_s_way() -> None:
    assert not rules(at_once(1, lease("a", 0, 9), lease("b", 5, 5), lease("c", 9, 10)))


def test_a_limit_of_nothing_admits_nothing() -> None:
    assert rules(at_once(0, lease("a", 0, 1))) == {"over_limit"}


def test_the_moment_with_the_least_to_read_is_shown() -> None:
    long = [lease("a", 0, 9, 30), lease("b", 1, 9, 30)]
    short = [lease("c", 20, 29), lease("d", 21, 29)]
    found = at_once(1, *long, *short)
    assert found.shortest["over_limit"].jobs == ("d", "c")
    assert found.found["over_limit"] == 2


def test_the_leases_of_a_history_are_from_claim_to_outcome() -> None:
    lived = Lived("claimed", "cancel_requested", "released", "claimed")
    leases = list(leases_of(Life(JOB, events=lived.events)))
    moments = [event.at for event in lived.events]
    assert [(each.began, each.ended) for each in leases] == [(moments[1], moments[3]), (moments[4], None)]


# A minute


def test_one_a_second_is_sixty_a_minute() -> None:
    assert not rules(started(60, 1, *range(200)))


def test_a_little_early_is_one_too_many() -> None:
    assert rules(started(60, 1, 0, 1, 1.99)) == {"over_rate"}


def test_a_burst_may_start_together_once() -> None:
    assert not rules(started(60, 3, 0, 0, 0, 1, 2, 3))
    assert rules(started(60, 3, 0, 0, 0, 0)) == {"over_rate"}
    assert rules(started(60, 3, 0, 0, 0, 1, 1)) == {"over_rate"}


def test_what_was_not_used_is_saved_up_to_the_burst_and_no_further() -> None:
    assert not rules(started(60, 3, 0, 100, 100, 100))
    assert rules(started(60, 3, 0, 100, 100, 100, 100)) == {"over_rate"}


@pytest.mark.parametrize("rate", [6, 60, 600])
def test_with_a_burst_of_one_no_sliding_minute_has_more_than_the_rate(rate: int) -> None:
    """As many as the rule lets through, and they do not exceed it; one more does."""
    moments = [number * 60 / rate for number in range(3 * rate)]
    assert not rules(started(rate, 1, *moments))
    assert max(sum(first <= moment < first + 60 for moment in moments) for first in moments) == rate
    assert rules(started(rate, 1, *moments, moments[rate] + 0.001)) == {"over_rate"}


def test_a_slow_creep_over_the_rate_is_found() -> None:
    """Each pair is nearly right; together they are not."""
    assert rules(started(60, 2, *(number * 0.99 for number in range(250)))) == {"over_rate"}


def test_moments_that_cannot_be_read_are_left_to_verify() -> None:
    found = Findings()
    check_rate(LimitedSource("shop", rate_limit_per_minute=1), [Lease("a", "zzz", None, 3)], found)
    assert not rules(found)
    assert found.checked["over_rate"] == 0


def test_a_source_without_a_rate_has_none_to_exceed() -> None:
    found = Findings()
    check_rate(LimitedSource("shop", max_concurrent=1), [lease("a", 0), lease("b", 0)], found)
    assert not rules(found)
