"""What happened over time, as far as a visitor may see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.domain.activity import COUNTS, DEPTHS, Kind, Step, merged
from holdfast.ports import Store
from holdfast.serve.dashboard.session import Visitor

HOUR = 3_600.0
# Range, and how much of it is one point: about a hundred of them, whatever the range.
RANGES = (("15 min", 900), ("1 h", 3_600), ("6 h", 21_600), ("24 h", 86_400), ("7 d", 604_800))
STEPS = {900: 60.0, 3_600: 60.0, 21_600: 300.0, 86_400: 900.0, 604_800: 7_200.0}


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
        added: dict[str, Any] = {name: getattr(first, name) + getattr(step, name) for name in COUNTS}
        for name in DEPTHS:
            known_depths = [value for value in (getattr(first, name), getattr(step, name)) if value is not None]
            both = max if name == "oldest_seconds" else sum
            added[name] = both(known_depths) if known_depths else None
        first = replace(first, **added, wait=first.wait + step.wait, run=first.run + step.run)
    return first


def ended(step: Step) -> int:
    return step.succeeded + step.failed


def troubled(step: Step) -> int:
    """Attempts that did not come to a good end."""
    return step.failed + step.retried + step.lost
