"""How long what is over is kept: the rows of finished jobs and, apart from them, the histories of pruned jobs.

A rule says it for one kind, queue and state. The rule of a queue wins over that of '*', which is for every queue
without one of its own; where neither is stored, the built-in age holds. No age at all means for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.names import check_name


class Kept(StrEnum):
    JOBS = "jobs"  # rows of finished jobs, by the time they finished
    HISTORIES = "histories"  # audit rows of pruned jobs, by the time they were pruned


EVERY_QUEUE = "*"
FOREVER = "forever"
_DAY = 86_400.0

DEFAULTS: dict[tuple[Kept, State], float | None] = {
    (Kept.JOBS, State.SUCCEEDED): 7 * _DAY,
    (Kept.JOBS, State.FAILED): 90 * _DAY,  # the dead letters: somebody may still want to requeue them
    (Kept.JOBS, State.CANCELLED): 7 * _DAY,
    (Kept.HISTORIES, State.SUCCEEDED): 90 * _DAY,
    (Kept.HISTORIES, State.FAILED): 90 * _DAY,
    (Kept.HISTORIES, State.CANCELLED): 90 * _DAY,
}


@dataclass(frozen=True, slots=True)
class Rule:
    what: Kept
    queue: str
    state: State
    keep_seconds: float | None  # None: for ever
    updated_at: datetime | None = None  # None: built in


@dataclass(frozen=True, slots=True)
class Group:
    """What is kept and removed together, and how long it is kept."""

    what: Kept
    queue: str
    state: State
    keep_seconds: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """A group of which there is something, and the age of its oldest member by the store's clock."""

    what: Kept
    queue: str
    state: State
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """Jobs whose rows were deleted in one batch. `more`: the batch was full, or cut short for the many rows that some
    of its jobs have in other tables; what is left of it should be asked for."""

    ids: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Retired:
    """Histories that were deleted in one batch, and how many events they had."""

    jobs: int
    events: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """What has gone through the door of the audit log so far. No history of a job that was pruned after `through` was
    ever retired."""

    through: datetime
    jobs: int
    events: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would remove of one group now. `counted` is false where counting stopped at its bound."""

    what: Kept
    queue: str
    state: State
    keep_seconds: float
    count: int
    events: int  # of the histories; none are removed with jobs
    oldest_at: datetime
    counted: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """Who did a duty last, and when."""

    name: str
    ticked_at: datetime | None
    holder: str | None


class Rules:
    def __init__(self, stored: Iterable[Rule] = ()) -> None:
        self._stored = {(rule.what, rule.queue, rule.state): rule for rule in stored}

    def keep_seconds(self, what: Kept, queue: str, state: State) -> float | None:
        return self._rule(what, queue, state).keep_seconds

    def in_force(self) -> list[Rule]:
        """For every kind and state the rule of '*', stored or built in, and after it those of single queues."""
        found = []
        for what in Kept:
            for state in TERMINAL:
                own = sorted(queue for kind, queue, ended in self._stored if (kind, ended) == (what, state))
                queues = [EVERY_QUEUE, *(queue for queue in own if queue != EVERY_QUEUE)]
                found += [self._rule(what, queue, state) for queue in queues]
        return found

    def due(self, found: Iterable[Found]) -> list[Group]:
        """The groups whose oldest member has been kept for long enough."""
        groups = []
        for group in found:
            keep = self.keep_seconds(group.what, group.queue, group.state)
            # A hair before its time the batch itself, which tests every row, finds nothing and nothing is lost.
            if keep is not None and group.oldest_seconds >= keep - 0.01:
                groups.append(Group(group.what, group.queue, group.state, keep))
        return groups

    def longest_history(self) -> float | None:
        """Ticks of schedules, and refusals of jobs that nobody knows, are kept as long as any history."""
        ages = [self.keep_seconds(Kept.HISTORIES, EVERY_QUEUE, state) for state in TERMINAL]
        return None if None in ages else max(age for age in ages if age is not None)

    def _rule(self, what: Kept, queue: str, state: State) -> Rule:
        for name in (queue, EVERY_QUEUE):
            rule = self._stored.get((what, name, state))
            if rule is not None:
                return rule
        return Rule(what, EVERY_QUEUE, state, DEFAULTS[what, state])


def check_rule(what: Any, queue: Any, state: Any) -> tuple[Kept, str, State]:
    return _check_kept(what), check_name(queue, "queue"), check_state(state)


def check_state(state: Any) -> State:
    if state not in TERMINAL:
        raise InvalidInput("state", f"must be {', '.join(TERMINAL[:-1])} or {TERMINAL[-1]}, got {state}")
    return State(state)


def check_keep(value: Any, field: str = "keep") -> float | None:
    """A duration, or the word for no end of it."""
    if value is None or value == FOREVER:
        return None
    try:
        return durations.seconds(value, field)
    except InvalidInput as problem:
        raise InvalidInput(field, f"{problem.rule}; or {FOREVER}") from None


def _check_kept(what: Any) -> Kept:
    try:
        return Kept(what)
    except ValueError:
        raise InvalidInput("what", f"must be {' or '.join(Kept)}, got {what!r}") from None
