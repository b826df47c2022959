"""Checkpoints of a SQLite file whose log stays long: nobody commits any more, or every try so far met a reader.

Looking costs no statement, and the lock beside the file lets only one process checkpoint, so nobody takes turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.maintenance.chores import Chore

if TYPE_CHECKING:
    from holdfast.ports import UpkeepStore

PERIOD_SECONDS = 30.0


def checkpoints(store: Callable[[], UpkeepStore], period_seconds: float = PERIOD_SECONDS) -> Chore:
    def steps() -> Iterator[int]:
        yield int(store().checkpoint())

    return Chore("checkpoint", period_seconds, steps, by_turns=False)
