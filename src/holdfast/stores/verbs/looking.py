"""What a claim looks for, and what it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

EXACT_LANES = 16  # across so many the order is exact
SOME_LANES = 8  # where there are more, so many at a time: each costs a lock and a write


@dataclass(frozen=True, slots=True)
class Looking:
    """How many jobs to look for, and which; in how many lanes of a priority, and from which on. `closed` are sources
    and `shut` queues to leave out."""

    window: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    lanes: int = EXACT_LANES
    after: tuple[str, str] = ("", "")
    closed: frozenset[str] = frozenset()
    shut: frozenset[str] = frozenset()


class Candidate(NamedTuple):
    id: str
    task: str
    source: str  # '' for none
    queue: str
    source_limited: bool
    queue_limited: bool
    cut: bool = False  # its priority may have more lanes than were looked at
    priority: int = 0
    room: int | None = None  # of its source, where that is known for sure: nobody else writes
    metered: bool = False  # its source has a rate
