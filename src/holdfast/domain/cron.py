"""When a schedule is due: a cron expression on some country's wall clocks, or a steady interval.

A cron expression names wall times; a schedule needs instants. A wall time that is skipped when clocks go forward runs
at the very instant of the change, and one that is shown twice when they go back runs the first time only. Both are one
rule: *the first instant at which the clock has come that far*. It never goes back as wall times go on, so walking the
wall times in order yields the instants in order.

The exception are expressions that allow every hour (`*/15 * * * *`). They name no time of day, they mean "all the
time", and follow the clock as it goes: no hour passes without them, and none is longer for them (decision 0010).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.domain.durations import LONGEST_SECONDS
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name

if TYPE_CHECKING:
    from cronsim import CronSim

SHORTEST_INTERVAL_SECONDS = 1.0

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_FIRST_WINDOW = timedelta(seconds=64)
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time
_EVERY_HOUR = set(range(24))
_FORM = (
    "must be five fields (minute, hour, day of month, month, day of week) as in '0 9 * * mon-fri',"
    " or six with the seconds first"
)


@dataclass(frozen=True, slots=True)
class Cron:
    """`expression` as cronsim reads it (Debian's cron, with L, LW, # and seconds), on the clocks of `timezone`."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.timezone)
        _parsed(check_name(self.expression, "cron"))

    def next_after(self, instant: datetime) -> datetime | None:
        return next(self.after(instant), None)

    def latest(self, start: datetime, until: datetime, count: int) -> list[datetime]:
        """The newest `count` instants of [start, until], oldest first: a window before the end is looked at, and a
        wider one while that has too few."""
        window = _FIRST_WINDOW
        while True:
            begin = max(start, until - window)
            found = list(takewhile(lambda instant: instant <= until, self.after(begin - _TICK)))
            if len(found) >= count or begin == start:
                return found[-count:]
            window *= 2

    def after(self, instant: datetime) -> Iterator[datetime]:
        """All instants later than that one, in order."""
        zone = zone_of(self.timezone)
        instants = _followed if _parsed(self.expression) else _reached
        last = instant
        for found in instants(self.expression, zone, instant.astimezone(zone)):
            if found > last:
                yield found
                last = found


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds, counted from `anchor` in both directions."""

    seconds: float
    anchor: datetime

    def __post_init__(self) -> None:
        if not SHORTEST_INTERVAL_SECONDS <= self.seconds <= LONGEST_SECONDS:
            raise InvalidInput("every", f"must be at least one second and at most ten years, got {self.seconds:g} s")

    def next_after(self, instant: datetime) -> datetime | None:
        return self._at_or_before(instant) + self._step

    def latest(self, start: datetime, until: datetime, count: int) -> list[datetime]:
        last, step = self._at_or_before(until), self._step
        fitting = max(0, (last - start) // step + 1)
        return [last - step * back for back in reversed(range(min(count, fitting)))]

    @property
    def _step(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def _at_or_before(self, instant: datetime) -> datetime:
        return self.anchor + (instant - self.anchor) // self._step * self._step


Rule = Cron | Every


def rule_of(cron: str | None, every_seconds: float | None, timezone: str, anchor: datetime) -> Rule:
    if cron is not None and every_seconds is not None:
        raise InvalidInput("every", "cannot be given together with a cron expression; choose one")
    if cron is not None:
        return Cron(cron, timezone)
    if every_seconds is None:
        raise InvalidInput("cron", "is missing: give a cron expression, or an interval with every")
    zone_of(timezone)
    return Every(every_seconds, anchor)


def zone_of(name: str) -> ZoneInfo:
    check_name(name, "timezone")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the others: a path, a folder of zones
        raise InvalidInput(
            "timezone", f"must be a name of the tz database such as Europe/Berlin or UTC, got {name!r}"
        ) from None


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> bool:
    """Whether it allows every hour; refuses what cannot be read and what no day of fifty years matches."""
    from cronsim import CronSimError

    try:
        walls = _walls(expression, _SOME_DAY)
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        if _is_readable(_in_any_month(expression)):
            raise InvalidInput("cron", f"{expression!r} never comes: its months have no such day") from None
        said = str(error) or "it cannot be read"
        raise InvalidInput("cron", f"{_FORM}; got {expression!r}: {said[:1].lower()}{said[1:]}") from None
    if next(walls, None) is None:
        raise InvalidInput("cron", f"{expression!r} never comes: no day of the next fifty years matches it")
    return walls.hours == _EVERY_HOUR


def _is_readable(expression: str) -> bool:
    from cronsim import CronSimError

    try:
        return next(_walls(expression, _SOME_DAY), None) is not None
    except (CronSimError, AssertionError, ValueError, TypeError):
        return False


def _in_any_month(expression: str) -> str:
    fields = expression.split()
    # A month that cannot be read would be taken away as well, so it is tried on the first, which every month has.
    if len(fields) not in (5, 6) or not _is_readable(" ".join([*fields[:-3], "1", *fields[-2:]])):
        return ""
    return " ".join([*fields[:-2], "*", fields[-1]])


def _walls(expression: str, after: datetime) -> CronSim:
    from cronsim import CronSim

    return CronSim(expression, after)


def _reached(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    # A wall time that the clock has not come to yet is later than what it shows now; the reverse need not be true, in
    # the hour that is shown twice.
    for wall in _walls(expression, after.replace(tzinfo=None, fold=0)):
        yield _first_instant(wall, zone)


def _followed(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    # Between two changes of the clock, what it shows and the instants keep one distance. cronsim can follow a clock,
    # too, but jumps over changes of half an hour.
    instant, offset = after.astimezone(UTC), _offset(after, zone)
    while True:
        for wall in _walls(expression, instant.replace(tzinfo=None) + offset):
            found = (wall - offset).replace(tzinfo=UTC)
            near = min(found, instant + _DAY)
            if found > near or _offset(near, zone) != offset:
                break
            yield found
            instant = found
        else:
            return
        if _offset(near, zone) != offset:
            instant, offset = _change(instant, near, zone) - _TICK, _offset(near, zone)
        else:  # far away: go there, and see how the clock goes then
            instant = max(near, _first_instant(wall, zone) - _DAY)
            offset = _offset(instant, zone)


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first one at which the clock shows this time or a later one."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return instant
    # Skipped. As the clock went before the change, that instant is after it; as it goes since, before it.
    return _change(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _change(before: datetime, since: datetime, zone: ZoneInfo) -> datetime:
    """The instant between these two, to the second, from which on the clock goes as it does at the later one."""
    offset = _offset(since, zone)
    since, before = since.replace(microsecond=0), before.replace(microsecond=0)
    while since - before > _SECOND:
        middle = before + (since - before) // _SECOND // 2 * _SECOND
        if _offset(middle, zone) == offset:
            since = middle
        else:
            before = middle
    return since


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
