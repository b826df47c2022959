"""What happened over time, as far as a visitor may see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from holdfast.domain.activity import COUNTS, DEPTHS, Kind, Step, merged
from holdfast.ports import Store
from holdfast.serve.dashboard.session import Visitor

HOUR = 3_600.0
# Range, and how much of it is one point: about a hundred of them, whatever the range.
RANGES = (("1 h", 3_600), ("6 h", 21_600), ("24 h", 86_400), ("7 d", 604_800))
STEPS = {3_600: 60.0, 21_600: 300.0, 86_400: 900.0, 604_800: 7_200.0}


def of_all(store: Store, visitor: Visitor, seconds: float, step_seconds: float = 60.0) -> tuple[Step, ...]:
    """Everything, or the sum of the queues that the visitor may see."""
    queues = visitor.identity.queues
    if queues is None:
        return next(iter(store.activity(Kind.ALL, seconds, None, step_seconds).series.values()), ())
    found = store.activity(Kind.QUEUE, seconds, queues, step_seconds).series.values()
    return tuple(together(steps) for steps in zip(*found, strict=True))


def by_name(store: Store, kind: Kind, seconds: float, names: Sequence[str] | None = None) -> dict[str, Step]:
    """One step for all of the time."""
    found = store.activity(kind, seconds, names, 60.0).series
    return {name: merged(steps) for name, steps in found.items() if steps}


def together(steps: Iterable[Step]) -> Step:
    """Several of the same time as one."""
    known = list(steps)
    first, rest = known[0], known[1:]
    for step in rest:
        counts = {name: getattr(first, name) + getattr(step, name) for name in COUNTS}
        depths = {name: _sum(getattr(first, name), getattr(step, name)) for name in DEPTHS if name != "oldest_seconds"}
        oldest = [value for value in (first.oldest_seconds, step.oldest_seconds) if value is not None]
        first = replace(
            first,
            **counts,
            **depths,
            oldest_seconds=max(oldest, default=None),
            wait=first.wait + step.wait,
            run=first.run + step.run,
        )
    return first


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def ended(step: Step) -> int:
    return step.succeeded + step.failed


def troubled(step: Step) -> int:
    """Attempts that did not come to a good end."""
    return step.failed + step.retried + step.lost
