"""Keep the roll-up of the audit log by the minute.

Everybody looks, which is one row read; whose turn it is, and how long it then rests, is the store's business. Who found
nothing to do looks less often for a while. What piled up in an outage is caught up with pass by pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.maintenance.chores import Chore

if TYPE_CHECKING:
    from holdfast.ports import ActivityStore

PERIOD_SECONDS = 10.0
LEFT_OUT = 2  # looks, after one that found nothing to do


def minutes(store: Callable[[], ActivityStore], holder: str, period_seconds: float = PERIOD_SECONDS) -> Chore:
    left_out = 0

    def steps() -> Iterator[int]:
        nonlocal left_out
        if left_out:
            left_out -= 1
            return
        while (rolled := store().roll_up(holder)) is not None:
            yield 0  # nothing was tidied up, and nobody wants to read of it every ten seconds
            if not rolled.behind:
                return
        left_out = LEFT_OUT

    return Chore("minutes", period_seconds, steps, by_turns=False)
