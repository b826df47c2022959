"""A schedule, what is declared of it, and the decision which of its due instants fire. Pure.

Among the instants that are due, the latest is on time while it is not older than the grace; every other was missed.

skip    only what is on time fires
once    one job for all of them, at the latest instant
all     the newest so many fire, each with a job of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.domain import durations
from holdfast.domain.cron import Rule, rule_of
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import NewJob
from holdfast.domain.names import check_integer, check_name

DEFAULT_GRACE_SECONDS = 60.0
SHORTEST_GRACE_SECONDS = 5.0
DEFAULT_ALL_LIMIT = 10
# A schedule that was written so much later than now was written by a clock that was ahead.
CLOCK_SLACK_SECONDS = 60
MOST_AT_ONCE = 1_000  # jobs of one firing; missed instants are counted so far, too
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# A tick decides these for itself.
_NOT_FOR_SCHEDULES = ("task", "run_after", "delay", "id", "replay_of", "traceparent")


class Misfire(StrEnum):
    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Outcome(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    EXISTING = "existing"  # a unique job was still active, or a success young enough to be reused
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What somebody says of a schedule. Construction validates everything: an instance can always fire.

    `job` holds `payload` and the other options of the `NewJob` that a tick makes.
    """

    name: str
    task: str
    job: dict[str, Any] = field(default_factory=dict)
    cron: str | None = None
    every_seconds: float | None = None
    timezone: str = "UTC"
    misfire: Misfire | str = Misfire.ONCE
    misfire_limit: int | None = None
    misfire_grace_seconds: float = DEFAULT_GRACE_SECONDS
    tick_argument: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        check_name(self.task, "task")
        if self.every_seconds is not None:
            _set(self, "every_seconds", durations.seconds(self.every_seconds, "every"))
        rule_of(self.cron, self.every_seconds, self.timezone, _EPOCH)
        _set(self, "misfire", _misfire(self.misfire))
        if self.misfire_limit is None:
            _set(self, "misfire_limit", DEFAULT_ALL_LIMIT if self.misfire is Misfire.ALL else 1)
        check_integer(self.misfire_limit, "misfire_limit", 1, MOST_AT_ONCE)
        _set(self, "misfire_grace_seconds", _grace(self.misfire_grace_seconds))
        if self.tick_argument is not None:
            check_name(self.tick_argument, "tick")
        job_at(self.task, self.job, self.tick_argument, _EPOCH)

    def to_json(self) -> dict[str, Any]:
        """Without the name, under which it is stored."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "name"}
        return {**values, "misfire": str(self.misfire)}

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Declaration:
        known = {item.name for item in fields(cls)} - {"name"}
        for key in value:
            if key not in known:
                raise InvalidInput(str(key), f"unknown option of a schedule; known are {', '.join(sorted(known))}")
        if "task" not in value:
            raise InvalidInput("task", "is required")
        return cls(name=name, **value)


def overridden(declared: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """One over the other. A cron expression takes the place of an interval and the other way round; of the job, only
    what is named changes."""
    result = {**declared, **changes}
    if changes.get("cron") is not None:
        result["every_seconds"] = changes.get("every_seconds")
    elif changes.get("every_seconds") is not None:
        result["cron"] = None
    if "misfire" in changes and "misfire_limit" not in changes and changes["misfire"] != declared.get("misfire"):
        result["misfire_limit"] = None
    if "job" in changes and isinstance(changes["job"], Mapping):
        result["job"] = {**declared.get("job", {}), **changes["job"]}
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """As it is stored: what is in effect, what code declared, what was changed at run time."""

    name: str
    task: str
    job: dict[str, Any]
    cron: str | None
    every_seconds: float | None
    anchor_at: datetime
    timezone: str
    misfire: str
    misfire_limit: int
    misfire_grace_seconds: float
    tick_argument: str | None
    declared: dict[str, Any] | None
    declared_at: datetime | None
    overrides: dict[str, Any]
    paused_at: datetime | None
    next_at: datetime | None
    last_at: datetime | None
    revision: int
    created_at: datetime
    updated_at: datetime

    def rule(self) -> Rule:
        return rule_of(self.cron, self.every_seconds, self.timezone, self.anchor_at)

    def job_at(self, planned: datetime, defaults: Mapping[str, Any] | None = None) -> NewJob:
        return job_at(self.task, self.job, self.tick_argument, planned, defaults)

    def following(self, wanted: Declaration, now: datetime) -> Schedule:
        """This schedule as it is wanted now: the next instant stays, unless the timing is another."""
        changed = replace(self, **wanted.to_json())
        return changed if changed._timing() == self._timing() else changed.planned_after(now)

    def planned_after(self, now: datetime) -> Schedule:
        return replace(self, next_at=self.rule().next_after(now))

    def in_time(self, now: datetime) -> Schedule:
        """This schedule; planned from now on if a clock that was ahead has planned it."""
        if not self.is_ahead(now):
            return self
        last_at = None if self.last_at is not None and self.last_at > now else self.last_at
        return replace(self, last_at=last_at).planned_after(now)

    def is_ahead(self, now: datetime) -> bool:
        written = self.updated_at if self.last_at is None else max(self.updated_at, self.last_at)
        return written > now + timedelta(seconds=CLOCK_SLACK_SECONDS)

    def _timing(self) -> tuple[object, ...]:
        # To an interval the zone means nothing.
        return (self.cron, self.every_seconds, None if self.cron is None else self.timezone)


@dataclass(frozen=True, slots=True)
class Tick:
    """What became of one planned instant of a schedule."""

    schedule: str
    planned_at: datetime
    fired_at: datetime
    outcome: str
    job_id: str | None = None
    holder: str | None = None
    detail: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ScheduleFailure:
    """A schedule that is due and cannot fire; the others do."""

    schedule: str
    message: str


@dataclass(frozen=True, slots=True)
class Fired:
    """One look at all schedules. `seconds_to_next` is None when none will ever be due as they stand."""

    ticks: tuple[Tick, ...] = ()
    failures: tuple[ScheduleFailure, ...] = ()
    seconds_to_next: float | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Instants that did not fire: the first and the last of them, and how many; of very many only the newest are
    counted (`more`)."""

    first: datetime
    last: datetime
    count: int
    more: bool

    def detail(self) -> dict[str, Any]:
        return {"first": iso(self.first), "count": self.count, "more": self.more}


@dataclass(frozen=True, slots=True)
class Firing:
    fire: tuple[datetime, ...]
    left_out: LeftOut | None
    next_at: datetime | None


def due(schedule: Schedule, now: datetime) -> Firing:
    """`now` is the store's, the very one by which the schedule was found to be due, or planned by a clock ahead."""
    assert schedule.next_at is not None
    rule = schedule.rule()
    if schedule.next_at > now:
        assert schedule.is_ahead(now)
        return Firing((), None, rule.next_after(now))
    instants = rule.latest(schedule.next_at, now, MOST_AT_ONCE)
    if schedule.next_at not in instants and len(instants) < MOST_AT_ONCE:
        # What is stored counts, also where an operator typed it or the zone's rules have changed since.
        instants.insert(0, schedule.next_at)
    fired = _fired(schedule, instants, now)
    missed = instants[: len(instants) - len(fired)]
    left_out = None
    if missed:
        more = len(instants) == MOST_AT_ONCE and schedule.next_at < instants[0]
        left_out = LeftOut(missed[0], missed[-1], len(missed), more)
    return Firing(tuple(fired), left_out, rule.next_after(now))


def _fired(schedule: Schedule, instants: list[datetime], now: datetime) -> list[datetime]:
    """The newest so many of them."""
    match _misfire(schedule.misfire):
        case Misfire.SKIP:
            on_time = (now - instants[-1]).total_seconds() <= schedule.misfire_grace_seconds
            return instants[-1:] if on_time else []
        case Misfire.ONCE:
            return instants[-1:]
        case Misfire.ALL:
            return instants[-min(schedule.misfire_limit, MOST_AT_ONCE) :]


def job_at(
    task: str,
    job: Any,
    tick_argument: str | None,
    planned: datetime,
    defaults: Mapping[str, Any] | None = None,
) -> NewJob:
    """The job of one tick; `defaults` are for what the schedule does not say."""
    if not isinstance(job, Mapping):
        raise InvalidInput("job", f"must be an object, got {type(job).__name__}")
    for name in _NOT_FOR_SCHEDULES:
        if name in job:
            raise InvalidInput(name, "cannot be given for a schedule: each tick has its own")
    options = {**(defaults or {}), **job}
    payload = options.get("payload", {})
    if tick_argument is not None and isinstance(payload, dict):
        payload = {**payload, tick_argument: iso(planned)}
    return NewJob.from_options({**options, "task": task, "payload": payload, "run_after": planned})


def iso(moment: datetime) -> str:
    """As an argument that is a datetime is stored."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _misfire(value: Any) -> Misfire:
    try:
        return Misfire(value)
    except ValueError:
        raise InvalidInput("misfire", f"must be one of {', '.join(Misfire)}, got {value!r}") from None


def _grace(value: Any) -> float:
    seconds = durations.seconds(value, "misfire_grace")
    if seconds < SHORTEST_GRACE_SECONDS:
        raise InvalidInput(
            "misfire_grace",
            f"must be at least {SHORTEST_GRACE_SECONDS:g} s, got {seconds:g} s: whoever looks is always a moment late,"
            " and with misfire=skip nothing would ever fire",
        )
    return seconds


def _set(declaration: Declaration, name: str, value: Any) -> None:
    object.__setattr__(declaration, name, value)
