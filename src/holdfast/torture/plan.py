"""Which faults come in which order: decided by the seed alone.

The kinds are dealt like cards, so that each comes before any comes twice. Some come two or three together. After every
second group what was hit is let come to itself before the next; the others are followed up at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LONGEST_REST_SECONDS = 1.5
TOGETHER = 0.25  # of the groups
PATIENT = 0.5


class Group(NamedTuple):
    rest_seconds: float  # before it
    kinds: tuple[str, ...]
    is_patient: bool  # what it hit must be well again before the next


def groups(seed: int, kinds: Sequence[str]) -> Iterator[Group]:
    """For ever."""
    chance = random.Random(f"plan-{seed}")
    deck: list[str] = []
    while kinds:
        size = chance.randint(2, 3) if chance.random() < TOGETHER else 1
        group: list[str] = []
        while len(group) < min(size, len(kinds)):
            if not deck:
                deck = list(kinds)
                chance.shuffle(deck)
            group.append(deck.pop())
        rest, is_patient = chance.uniform(0.2, LONGEST_REST_SECONDS), chance.random() < PATIENT
        yield Group(rest, tuple(dict.fromkeys(group)), is_patient)
