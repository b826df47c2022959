"""Which faults come in which order: decided by the seed alone.

The kinds are dealt like cards, so that each comes before any comes twice. Most come alone, and then what they hit must
be well again within its bound before the next; some come two or three together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

LONGEST_REST_SECONDS = 1.5
TOGETHER = 0.25  # of the groups


def groups(seed: int, kinds: Sequence[str], *, together: float = TOGETHER) -> Iterator[tuple[float, tuple[str, ...]]]:
    """For ever: how long to rest, and what to strike with then."""
    chance = random.Random(f"plan-{seed}")
    deck: list[str] = []
    while kinds:
        size = chance.randint(2, 3) if chance.random() < together else 1
        group: list[str] = []
        while len(group) < min(size, len(kinds)):
            if not deck:
                deck = list(kinds)
                chance.shuffle(deck)
            group.append(deck.pop())
        yield chance.uniform(0.2, LONGEST_REST_SECONDS), tuple(dict.fromkeys(group))
