"""Keep the roll-up of the audit log by the minute.

Everybody looks, which is one row read; whose turn it is, and how long it then rests, is the store's business. What
piled up in an outage is caught up with pass by pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.maintenance.chores import Chore

if TYPE_CHECKING:
    from holdfast.ports import ActivityStore

PERIOD_SECONDS = 10.0


def minutes(store: Callable[[], ActivityStore], holder: str, period_seconds: float = PERIOD_SECONDS) -> Chore:
    def steps() -> Iterator[int]:
        while (rolled := store().roll_up(holder)) is not None:
            yield 0  # nothing was tidied up, and nobody wants to read of it every ten seconds
            if not rolled.behind:
                return

    return Chore("minutes", period_seconds, steps, by_turns=False)
