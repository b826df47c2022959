"""How long things may take around one lease; what does not fit is refused at start-up.

A heartbeat that is sent in time and then waits for its whole network timeout must still leave half a lease for a
second try: `heartbeat + timeout <= lease / 2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import DEFAULT_HEARTBEAT_SECONDS

LONGEST_TIMEOUT_SECONDS = 10.0
LONGEST_REAP_PERIOD_SECONDS = 10.0
LONGEST_MARGIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    lease: float
    heartbeat: float
    timeout: float  # of one call to the store
    reap_period: float

    def beat_every(self, lease: float) -> float:
        """A job may bring a lease of its own."""
        return min(self.heartbeat, lease / 3)

    def tightened(self, lease: float) -> Timing:
        """For a worker some of whose tasks have shorter leases than it was told."""
        if lease >= self.lease:
            return self
        return Timing(
            lease, min(self.heartbeat, lease / 3), min(self.timeout, lease / 6), min(self.reap_period, lease / 6)
        )


def choose(lease: float, heartbeat: float | None = None) -> Timing:
    chosen = min(DEFAULT_HEARTBEAT_SECONDS, lease / 3) if heartbeat is None else heartbeat
    timeout = min(LONGEST_TIMEOUT_SECONDS, lease / 6)
    if chosen <= 0 or chosen + timeout > lease / 2 * 1.000001:
        raise ConfigurationError(
            f"a heartbeat every {chosen:g} s with a network timeout of {timeout:g} s does not fit in half of a lease of"
            f" {lease:g} s: a lost answer would cost the lease. Take a heartbeat of at most {lease / 2 - timeout:g} s,"
            " or a longer lease."
        )
    return Timing(lease, chosen, timeout, min(LONGEST_REAP_PERIOD_SECONDS, lease / 6))


def kill_margin(lease: float) -> float:
    """How long before the end of a lease that nobody confirms its runner is killed."""
    return min(LONGEST_MARGIN_SECONDS, lease / 10)
