"""In which order variants are measured in a round.

Those whose ratios matter stand side by side, and the reference comes again after every few others, so that whoever is
measured has it for a neighbour. Every other round is the other way round, so that nobody is always first.
"""

from __future__ import annotations

from collections.abc import Sequence

BETWEEN = 4  # others between two measurements of the reference


def rounds(names: Sequence[str], pairs: Sequence[Sequence[str]], reference: str, count: int) -> list[str]:
    """All rounds as one list. Where the reference ends a round and begins the next, once is enough."""
    order = [name for turn in range(count) for name in round_of(names, pairs, reference, turn)]
    if set(order) == {reference}:
        return order
    followed = zip(order, [*order[1:], None], strict=True)
    return [name for name, following in followed if not name == following == reference]


def round_of(names: Sequence[str], pairs: Sequence[Sequence[str]], reference: str, turn: int) -> list[str]:
    """`pairs`: names that are to be neighbours. Only what is in `names` is measured."""
    wanted = set(names)
    core = [[name for name in pair if name in wanted] for pair in pairs]
    placed = {name for pair in core for name in pair}
    others = [name for name in names if name not in placed]
    order = [name for pair in core for name in pair]
    for start in range(0, len(others), BETWEEN):
        order += others[start : start + BETWEEN]
        if reference in wanted:
            order.append(reference)
    return order if turn % 2 == 0 else order[::-1]
