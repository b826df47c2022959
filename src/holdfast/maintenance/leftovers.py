"""Rows that count for nothing any more: holds of attempts that are over, answers in the cache that have expired, and
minutes that are too old for any chart.

Nobody depends on their going: what is stale is not counted and not returned. They only take room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from holdfast.maintenance.chores import Chore

PERIOD_SECONDS = 600.0
AT_ONCE = 500
MINUTES_KEPT_SECONDS = 8 * 86_400.0


class Forgetful(Protocol):
    def forget_holds(self, limit: int) -> int: ...

    def forget_cached(self, limit: int) -> int: ...

    def forget_minutes(self, keep_seconds: float, limit: int) -> int: ...


def leftovers(store: Callable[[], Forgetful], period_seconds: float = PERIOD_SECONDS, at_once: int = AT_ONCE) -> Chore:
    def steps() -> Iterator[int]:
        forget_minutes = partial(store().forget_minutes, MINUTES_KEPT_SECONDS)
        for forget in (store().forget_holds, store().forget_cached, forget_minutes):
            while count := forget(at_once):
                yield count
                if count < at_once:
                    break

    return Chore("stale", period_seconds, steps)
