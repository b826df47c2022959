"""What a coin is worth, from the prices that were found for it.

What was paid counts before what is asked or bid: the median of the sold prices when there are enough of them, else the
middle between what sellers ask and buyers bid. Weak matches and wild prices are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

STRONG = 0.8  # year, mintmark and series; what matches less counts only where there is nothing better
ENOUGH_SOLD = 3
WILD = 3.0  # times the median


@dataclass(frozen=True, slots=True)
class Point:
    """A price as far as a valuation cares."""

    cents: int
    price_type: str
    strength: float = 1.0

    @classmethod
    def of(cls, data: dict[str, Any], strength: float) -> Point:
        return cls(int(Decimal(data["price"]) * 100), data["price_type"], strength)


@dataclass(frozen=True, slots=True)
class Valuation:
    value_cents: int | None  # None: nobody knows
    basis: str
    points: int
    left_out: int


def value(points: Iterable[Point]) -> Valuation:
    everything = list(points)
    kept = _without_wild(_strongest(everything))
    left_out = len(everything) - len(kept)
    sold, ask, bid = ([p.cents for p in kept if p.price_type == kind] for kind in ("sold", "ask", "bid"))
    if len(sold) >= ENOUGH_SOLD or (sold and not (ask or bid)):
        return Valuation(_middle(sold), "sold", len(sold), left_out + len(ask) + len(bid))
    sides = [_middle(side) for side in (sold, ask, bid) if side]
    if not sides:
        return Valuation(None, "nothing found", 0, left_out)
    return Valuation(_middle(sides), "between what is asked, bid and sold", len(kept), left_out)


def _strongest(points: Sequence[Point]) -> Sequence[Point]:
    strong = [point for point in points if point.strength >= STRONG]
    return strong if len(strong) >= ENOUGH_SOLD else points


def _without_wild(points: Sequence[Point]) -> Sequence[Point]:
    if len(points) < ENOUGH_SOLD:
        return points
    centre = median(point.cents for point in points)
    return [point for point in points if centre / WILD <= point.cents <= centre * WILD]


def _middle(prices: Sequence[int]) -> int:
    return round(median(prices))
