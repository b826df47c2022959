"""What does not fit around a lease is refused before anything runs."""

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.timing import choose, kill_margin


@pytest.mark.parametrize(
    ("lease", "heartbeat", "timeout", "reap_period"),
    [(60.0, 20.0, 10.0, 10.0), (600.0, 20.0, 10.0, 10.0), (30.0, 10.0, 5.0, 5.0), (3.0, 1.0, 0.5, 0.5)],
)
def test_everything_scales_with_the_lease(lease: float, heartbeat: float, timeout: float, reap_period: float) -> None:
    timing = choose(lease)
    assert (timing.heartbeat, timing.timeout, timing.reap_period) == (heartbeat, timeout, reap_period)


@pytest.mark.parametrize("heartbeat", [9.0, 3.4, 0.0, -1.0])
def test_a_heartbeat_that_does_not_fit_in_half_a_lease_is_refused(heartbeat: float) -> None:
    with pytest.raises(ConfigurationError, match="does not fit in half of a lease of 10 s"):
        choose(10.0, heartbeat)


def test_a_job_with_a_short_lease_of_its_own_is_beaten_more_often() -> None:
    assert choose(60.0).beat_every(6.0) == 2.0


@pytest.mark.parametrize("lease", [1.0, 2.0, 10.0, 60.0, 3600.0])
def test_what_is_killed_is_killed_before_the_lease_ends_and_after_two_heartbeats_were_missed(lease: float) -> None:
    timing = choose(lease)
    kill = lease - kill_margin(lease)
    assert timing.heartbeat + timing.timeout < lease - 2 * kill_margin(lease) < kill < lease


def test_a_task_with_a_shorter_lease_tightens_everything() -> None:
    timing = choose(60.0)
    assert timing.tightened(float("inf")) == timing.tightened(60.0) == timing
    short = timing.tightened(6.0)
    assert (short.lease, short.heartbeat, short.timeout, short.reap_period) == (6.0, 2.0, 1.0, 1.0)
