"""A chore: something that one process at a time does for all of them, now and then, a small batch at a time.

`steps` is begun by the winner of a period. Every step of it is one short transaction or one bounded piece of work, and
yields how many things it dealt with; between two steps the caller may pause, renew its turn, or stop altogether. So a
chore must be able to begin anew at any time: what it has done is in the database, never in the iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chore:
    name: str  # its row in holdfast_duties
    period_seconds: float
    steps: Callable[[], Iterator[int]]
    # False: every process looks for itself, and asks for no turn. For what costs nothing while there is nothing to do,
    # and has an exclusion of its own.
    by_turns: bool = True
