"""Answers to the questions an operator asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.sources import Breaker

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a listing; `after` continues it, None when there is no more."""

    items: tuple[Item, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class Found(Page[Item]):
    """A page of a search that looks at so many rows at most. With `looked_back_to` it is short because of that: what is
    wanted may still lie beyond, and `after` goes on from there. Of a spec hash there is no `after`: then what has ended
    was looked at whole, and what waits only back to there."""

    looked_back_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A job in a list that must stay small: columns that are `omitted` are too large for it and read as empty."""

    job: Job
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are wanted. No states are all of them, no queues (None) are all of them, and so on; an empty list of
    queues is none. `spec_hash` is a whole one or how one begins, with six characters at least."""

    states: tuple[State, ...] = ()
    queues: tuple[str, ...] | None = None
    task: str | None = None
    source: str | None = None
    spec_hash: str | None = None
    worker: str | None = None  # that holds the job's lease
    error_code: str | None = None  # of its last error


@dataclass(frozen=True, slots=True)
class Counted:
    """How many there are; with `at_least` nobody counted them all."""

    count: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many jobs are in a state; with `at_least` nobody counted them all."""

    state: State
    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What an operator has said of a queue; of most of them nothing."""

    name: str
    paused_at: datetime | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class QueueView:
    name: str
    ready: int
    scheduled: int
    running: int
    oldest_ready_at: datetime | None
    paused_at: datetime | None
    max_running: int | None


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source's limits, and how it is. `level` is what its token bucket holds now; None without a rate limit."""

    name: str
    enabled: bool
    rate_limit_per_minute: float | None
    burst: int
    max_concurrent: int | None
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    paused_until: datetime | None
    paused_by: str | None = None
    breaker: Breaker = Breaker.CLOSED
    breaker_threshold: int = 5
    breaker_pause_seconds: float = 300.0
    breaker_only: tuple[str, ...] | None = None
    breaker_ignores: tuple[str, ...] = ()
    breaker_counts_permanent: bool = True
    level: float | None = None
    in_use: int = 0
    waiting: int = 0  # jobs that are due and wait for it
    waiting_at_least: bool = False  # nobody counted them all


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """A move of a breaker, or a change of a limit."""

    id: str
    source: str
    at: datetime
    event: str
    detail: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Refusal:
    job_id: str
    attempt: int
    verb: str
    reason: str
    worker: str
    first_at: datetime
    last_at: datetime
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """What a worker tells about itself, for people to look at. `queues` is None for all of them."""

    id: str
    host: str
    pid: int
    state: str
    app: str | None = None
    queues: tuple[str, ...] | None = None
    processes: int = 1
    slots: int = 1
    running: int = 0
    version: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView(WorkerRow):
    """The same with the store's times."""

    started_at: datetime
    beat_at: datetime
    stopped_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadCount:
    """Failed jobs of one task that ended with one error code."""

    task: str
    code: str | None
    count: int
    newest_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Failed jobs of one task that ended with one error code and, but for figures and names in it, one message: that
    of the newest of them, `example_id`."""

    task: str
    code: str | None
    message: str
    count: int
    newest_at: datetime | None
    example_id: str


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """The largest group first. `looked_at` is how many failed jobs were; with `at_least` there may be older ones."""

    groups: tuple[DeadGroup, ...]
    looked_at: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Stuck:
    """A group of jobs of one queue, task and source that do not move for one reason, by its oldest job."""

    job: Job
    reason: str
    code: str = ""  # the same for programs: `domain/stuck.py`
    detail: str = ""
    advice: str = ""
    count: int = 1
    at_least: bool = False  # there are more than `count`; nobody counted them all
