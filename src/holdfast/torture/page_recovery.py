"""How fast each kind of fault was recovered from, as a row of dots beside its bound.

Bounds differ, between kinds and within one; so the rows have the share of the bound in common, not the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from holdfast.torture.page_drawing import told_of
from holdfast.torture.page_scale import percent
from holdfast.torture.report import Kind, is_late
from holdfast.torture.results import Result, Strike

ROOM = 0.03  # at either end


@dataclass(frozen=True, slots=True)
class Dot:
    x: str
    kind: str
    told: str


@dataclass(frozen=True, slots=True)
class RecoveryScale:
    largest: float  # share of a bound that is drawn

    @property
    def bound(self) -> str:
        return self._place(1.0)

    def middle(self, kind: Kind) -> str | None:
        shares = [share for share in map(_share, kind.strikes) if share is not None]
        return self._place(median(shares)) if shares else None

    def dots(self, kind: Kind) -> Iterator[Dot]:
        for strike in kind.strikes:
            share = _share(strike)
            if share is not None:
                yield Dot(self._place(share), "is-late" if is_late(strike) else "", told_of(strike))

    def _place(self, share: float) -> str:
        return percent(ROOM + min(share / self.largest, 1.0) * (1 - 2 * ROOM))


def recovery_scale(result: Result) -> RecoveryScale:
    """Up to the bound, and beyond it as far as anything went."""
    shares = [_share(strike) or 0.0 for strike in result.strikes]
    return RecoveryScale(max([1.0, *shares]))


def _share(strike: Strike) -> float | None:
    if strike.recovered_seconds is None or not strike.bound_seconds:
        return None
    return strike.recovered_seconds / strike.bound_seconds
