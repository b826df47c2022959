"""A task with the times at which it runs by itself: what `@app.schedule` has registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.schedule import DEFAULT_GRACE_SECONDS, Declaration, Misfire, iso
from holdfast.tasks.options import Duration
from holdfast.tasks.task import AnyTask

_SOME_INSTANT = iso(datetime(2000, 1, 1, tzinfo=UTC))
_OF_ONE_JOB = ("run_after", "delay", "id", "connection", "traceparent")


@dataclass(frozen=True, slots=True)
class Times:
    """What is said of a schedule beside its task."""

    cron: str | None = None
    every: Duration | None = None
    timezone: str = "UTC"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    misfire: Misfire | str = Misfire.ONCE
    misfire_limit: int | None = None
    misfire_grace: Duration = DEFAULT_GRACE_SECONDS
    tick: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Checked when it is made, with what can be known at import: annotations may name what is defined further down,
    and the app's settings are not read yet."""

    task: AnyTask
    times: Times
    place: str

    def __post_init__(self) -> None:
        for name in _OF_ONE_JOB:
            if name in self.task.own_options:
                raise InvalidInput(name, "cannot be given for a schedule: each tick has its own")
        try:
            payload = self.payload()
        except ConfigurationError:
            payload = {}
        self._declaration("checked", {"payload": payload})

    def payload(self) -> dict[str, Any]:
        """The arguments of every job, without the instant that each of them is given."""
        times = self.times
        named = dict(times.kwargs or {})
        if times.tick is None:
            return self.task.arguments.dump(tuple(times.args), named)
        if times.tick in named:
            raise InvalidInput(times.tick, "is the parameter that is given the tick; leave it out of kwargs")
        payload = self.task.arguments.dump(tuple(times.args), {**named, times.tick: _SOME_INSTANT})
        return {name: value for name, value in payload.items() if name != times.tick}

    def declaration(self, name: str) -> Declaration:
        """For the store, which knows nothing of this app: with everything that its jobs need."""
        options = {key: _plain(value) for key, value in self.task.resolved_options().items()}
        return self._declaration(name, {**options, "payload": self.payload()})

    def _declaration(self, name: str, job: dict[str, Any]) -> Declaration:
        times = self.times
        return Declaration(
            name=name,
            task=self.task.name,
            job=job,
            cron=times.cron,
            every_seconds=None if times.every is None else durations.seconds(times.every, "every"),
            timezone=times.timezone,
            misfire=times.misfire,
            misfire_limit=times.misfire_limit,
            misfire_grace_seconds=durations.seconds(times.misfire_grace, "misfire_grace"),
            tick_argument=times.tick,
        )


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, RetryPolicy) else value
