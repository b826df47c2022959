"""Whether a job that is running may enter a source now; and if not, after how long it is worth to ask again. Pure.

The rules are those of a claim (`domain/admission.py`). What differs is the job's own source: the job itself already
counts as one in use there, and does not keep itself out of a breaker that is half open.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.domain.admission import SourceStanding
from holdfast.domain.breaker import Standing
from holdfast.domain.sources import Breaker, Entered, PausedBy

# There is no telling when a place becomes free: whoever waits for one asks again so often.
PLACE_ASKED_EVERY_SECONDS = 0.25
SWITCHED_ON_ASKED_EVERY_SECONDS = 5.0
# Whoever was told to wait for years asks again the next day: limits change.
LONGEST_WAIT_SECONDS = 86_400.0
BUSY = Entered(False, 0.05, "busy")
ADMITTED = Entered(True)


@dataclass(frozen=True, slots=True)
class Door:
    """A source as somebody finds it who wants to enter."""

    enabled: bool
    limits: SourceStanding
    standing: Standing
    threshold: int
    now: datetime

    def may_enter(self, in_use: int, probes: int, *, own: bool) -> Entered:
        """`probes`: the others that came in since the pause of a breaker was over."""
        if not self.enabled:
            return Entered(False, SWITCHED_ON_ASKED_EVERY_SECONDS, "disabled")
        paused_until = self.standing.paused_until
        if paused_until is not None and paused_until > self.now:
            reason = "breaker" if self.standing.paused_by is PausedBy.BREAKER else "paused"
            return Entered(False, min((paused_until - self.now).total_seconds(), LONGEST_WAIT_SECONDS), reason)
        if probes and self.standing.breaker(self.threshold, self.now) is Breaker.HALF_OPEN:
            return Entered(False, PLACE_ASKED_EVERY_SECONDS, "breaker")
        most = self.limits.max_concurrent
        if most is not None and not own and in_use >= most:
            return Entered(False, PLACE_ASKED_EVERY_SECONDS, "concurrency")
        return self._token()

    def _token(self) -> Entered:
        level, rate = self.limits.level, self.limits.rate_limit_per_minute
        if level is None or rate is None or level + 1e-9 >= 1.0:
            return ADMITTED
        return Entered(False, min((1.0 - level) * 60.0 / rate, LONGEST_WAIT_SECONDS), "rate")
