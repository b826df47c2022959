"""What a run knows of itself, and the checker cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ticking:
    """A schedule that fires every so many seconds, and is neither changed nor paused while the run lasts."""

    name: str
    task: str
    every_seconds: float
    # What was planned up to then has been dealt with (seconds since 1970); None: the run says nothing of the last ones.
    until: float | None = None


@dataclass(frozen=True, slots=True)
class LimitedSource:
    """A source whose limits are not changed while the run lasts."""

    name: str
    max_concurrent: int | None = None
    rate_limit_per_minute: float | None = None
    burst: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Times are seconds since 1970. `drained`: everybody was given the time to end what there was; what has not ended
    then is held against the engine. False where a run was broken off."""

    began_at: float
    ended_at: float
    struck_from: float = 0.0  # where the times of strikes begin
    drained: bool = True
    calm: frozenset[str] = frozenset()  # tasks whose code never fails
    poison: Mapping[str, int] = field(default_factory=dict)  # tasks that kill their worker, and their `max_crashes`
    undecodable: frozenset[str] = frozenset()  # tasks whose jobs all have payloads that cannot be decoded
    unnoted: frozenset[str] = frozenset()  # tasks whose code writes no notes: external commands
    settled_inside: frozenset[str] = frozenset()  # tasks that end in their own transaction, before their last line
    schedules: tuple[Ticking, ...] = ()
    sources: tuple[LimitedSource, ...] = ()
    queues: Mapping[str, int] = field(default_factory=dict)  # `max_running`
