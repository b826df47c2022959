"""What happened minute by minute, as people see it in charts: counts, depths, and how long things took.

The numbers are a roll-up of the audit log that the engine keeps (`holdfast_minutes`), recomputed and never incremented.
A duration is kept as a place in a histogram over fixed bounds, so that minutes can be added up and a percentile of any
span is still known to within a bucket.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest

MINUTE_SECONDS = 60.0
# Upper ends of the buckets in seconds; what is as long as the last one or longer is in one bucket more.
_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
    *(1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0),
)
WAIT_BOUNDS: tuple[float, ...] = _BOUNDS
RUN_BOUNDS: tuple[float, ...] = _BOUNDS


class Kind(StrEnum):
    """Of what a row of the roll-up speaks; the name of ALL is the empty one."""

    ALL = "all"
    QUEUE = "queue"
    TASK = "task"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram: `counts` has one number for each of `bounds` and one for what is beyond the last. It may end early:
    what is missing is zero."""

    bounds: tuple[float, ...] = _BOUNDS
    counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, durations: Iterable[float], bounds: tuple[float, ...] = _BOUNDS) -> Spread:
        counts = [0] * (len(bounds) + 1)
        for seconds in durations:
            counts[bucket(seconds, bounds)] += 1
        return cls(bounds, _trimmed(counts))

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile(self, share: float) -> float | None:
        """How long that share of them took at most, as if a bucket's were spread evenly over it; None of nothing. Of
        what is beyond the last bound only that bound is known."""
        total = self.total
        if not total:
            return None
        rank, below = min(max(share, 0.0), 1.0) * total, 0
        for place, count in enumerate(self.counts):
            if count and below + count >= rank:
                return self._within(place, (rank - below) / count)
            below += count
        return self.bounds[-1]

    def _within(self, place: int, part: float) -> float:
        if place >= len(self.bounds):
            return self.bounds[-1]
        lower = self.bounds[place - 1] if place else 0.0
        return lower + (self.bounds[place] - lower) * part

    def __add__(self, other: Spread) -> Spread:
        if self.bounds != other.bounds:
            raise ValueError("histograms over different bounds cannot be added")
        if not (self.counts and other.counts):
            return self if self.counts else other
        pairs = zip_longest(self.counts, other.counts, fillvalue=0)
        return Spread(self.bounds, tuple(mine + theirs for mine, theirs in pairs))


def bucket(seconds: float, bounds: Sequence[float] = _BOUNDS) -> int:
    """The place of a duration in the counts of a Spread: a bucket begins with its lower bound."""
    return bisect_right(bounds, seconds)


def _trimmed(counts: Sequence[int]) -> tuple[int, ...]:
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return tuple(counts[:end])


NO_WAITS = Spread(WAIT_BOUNDS)
NO_RUNS = Spread(RUN_BOUNDS)


@dataclass(frozen=True, slots=True)
class Step:
    """A minute or several, from `at` on. Depths are those of the last look in it; None when nobody looked."""

    at: datetime
    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0  # an error or a crash after which the job goes on
    lost: int = 0  # leases that ran out
    cancelled: int = 0
    snoozed: int = 0
    released: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    ready: int | None = None
    scheduled: int | None = None
    running: int | None = None
    oldest_seconds: float | None = None  # since when the oldest ready job is due; None as well when there is none
    wait: Spread = NO_WAITS  # from when a job was due until it was claimed
    run: Spread = NO_RUNS  # from the claim until the attempt's end


COUNTS: tuple[str, ...] = tuple(item.name for item in fields(Step) if item.default == 0)
DEPTHS: tuple[str, ...] = ("ready", "scheduled", "running", "oldest_seconds")


@dataclass(frozen=True, slots=True)
class Activity:
    """Series of steps without a gap, by name, each from the same moment until `now`; the last step is not over."""

    now: datetime
    step_seconds: float
    series: dict[str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class RolledUp:
    """One pass: how many minutes of the log it computed anew, up to when, from how many events, and what that cost.
    With `behind` there is more of the log than one pass takes."""

    minutes: int
    events: int
    through: datetime
    seconds: float
    behind: bool = False


def merged(steps: Sequence[Step]) -> Step:
    """Steps that follow each other as one, in order of time: sums, and the depth of the last look."""
    if not steps:
        raise ValueError("there is no step to merge")
    wait, run = NO_WAITS, NO_RUNS
    for step in steps:
        wait, run = wait + step.wait, run + step.run
    looked = next((step for step in reversed(steps) if step.ready is not None), steps[-1])
    return Step(
        at=steps[0].at,
        **{name: sum(getattr(step, name) for step in steps) for name in COUNTS},
        **{name: getattr(looked, name) for name in DEPTHS},
        wait=wait,
        run=run,
    )
