"""How many more jobs a limited source or queue lets in right now. Pure; the store holds the row's lock meanwhile.

In use is a count of rows in state `running`, and of the entries that such jobs made themselves, never a counter: so
nothing has to be given back when a worker dies. A breaker that is half open (its failures reached the threshold and
its pause is over) lets in a single probe, fleet-wide: a probe is what was let in since the pause was over, so that a
straggler from before it, which may hang for good, keeps nobody out. If the prober dies, its row leaves `running` and
the probe is free again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_HAIR = 1e-9  # of tolerance: a token that is due this very moment must not be lost to rounding


@dataclass(frozen=True, slots=True)
class SourceStanding:
    name: str
    max_concurrent: int | None
    rate_limit_per_minute: float | None
    burst: int
    bucket_level: float
    seconds_since: float
    half_open: bool
    paused_seconds: float | None = None  # what is left of its pause

    @property
    def level(self) -> float | None:
        """Tokens in the bucket now; None when there is no rate limit."""
        if self.rate_limit_per_minute is None:
            return None
        refilled = self.bucket_level + max(self.seconds_since, 0.0) * self.rate_limit_per_minute / 60.0
        return min(float(self.burst), refilled)

    def allowance(self, in_use: int, probes: int) -> int | None:
        """How many may start now; None for no limit. `probes` are those in use that were let in since its pause."""
        bounds: list[int] = []
        if self.half_open:
            bounds.append(1 - probes)
        if self.max_concurrent is not None:
            bounds.append(self.max_concurrent - in_use)
        if self.level is not None:
            bounds.append(math.floor(self.level + _HAIR))
        return max(0, min(bounds)) if bounds else None

    @property
    def opens_in(self) -> float | None:
        """The seconds after which a pause is over and a token is there; None when time alone changes nothing."""
        pause = max(self.paused_seconds or 0.0, 0.0)
        token = 0.0
        if self.level is not None and self.rate_limit_per_minute is not None and self.level + _HAIR < 1:
            token = (1 - self.level) * 60.0 / self.rate_limit_per_minute
        return max(pause, token) or None
