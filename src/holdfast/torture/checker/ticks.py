"""Schedules: each instant fired once, or is on record as left out.

Whoever looks at a schedule that is due writes rows for all instants since the last look: one for each that fires, and
one, `skipped`, for all that do not, planned at the last of them, with the first of them in its detail. So in order of
time the rows cover every instant from the schedule's first one on, without a hole and without covering any twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.domain.schedule import Outcome
from holdfast.torture.checker.expectations import Ticking
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.rules import Rule


@dataclass(frozen=True, slots=True)
class Tick:
    schedule: str
    planned_at: datetime
    outcome: str
    job_id: str | None = None
    first: datetime | None = None  # of the instants that were left out
    more: bool = False  # and there were others before it, which nobody counted

    @property
    def begins(self) -> datetime:
        return self.planned_at if self.first is None else self.first


def check_ticks(
    ticks: Sequence[Tick], schedules: Sequence[Ticking], anchors: Mapping[str, datetime], found: Findings
) -> None:
    """`anchors`: from when on the instants of a schedule are counted, where that is known."""
    _check_jobs(ticks, found)
    for schedule in schedules:
        of_it = sorted((tick for tick in ticks if tick.schedule == schedule.name), key=lambda tick: tick.planned_at)
        _check_instants(schedule, of_it, anchors.get(schedule.name), found)


def _check_jobs(ticks: Sequence[Tick], found: Findings) -> None:
    made: dict[str, Tick] = {}
    for tick in ticks:
        if tick.outcome != Outcome.FIRED:
            continue
        found.held(Rule.TICK_TWICE)
        if tick.job_id is None:
            found.add(Rule.TICK_MISSED, f"{_named(tick)} fired, and has no job")
        elif tick.job_id in made:
            fault = f"{_named(tick)} and {_named(made[tick.job_id])} both made this job"
            found.add(Rule.TICK_TWICE, fault, tick.job_id)
        else:
            made[tick.job_id] = tick


def _check_instants(schedule: Ticking, ticks: Sequence[Tick], anchor: datetime | None, found: Findings) -> None:
    step = timedelta(seconds=schedule.every_seconds)
    # A schedule that was removed and made anew is counted from the later time; what went before it is not known.
    last = anchor if anchor is not None and (not ticks or anchor < ticks[0].begins) else None
    for tick in ticks:
        found.held(Rule.TICK_MISSED, (tick.planned_at - tick.begins) // step + 1)
        jobs = () if tick.job_id is None else (tick.job_id,)
        if last is not None and tick.begins < last + step:
            fault = f"{_named(tick)} comes again, or between two instants: {_text(last)} was dealt with before"
            found.add(Rule.TICK_TWICE, fault, *jobs)
        elif last is not None and tick.begins > last + step and not tick.more:
            fault = f"{_named(tick)} follows {_text(last)}; every {schedule.every_seconds:g} s was planned"
            found.add(Rule.TICK_MISSED, fault, *jobs)
        last = tick.planned_at
    if schedule.until is None:
        return
    until = datetime.fromtimestamp(schedule.until, UTC)
    if last is None or last + step <= until:
        since = "there is no tick at all" if last is None or not ticks else f"its last tick is that of {_text(last)}"
        found.add(Rule.TICK_MISSED, f"schedule {schedule.name} was to fire until {_text(until)}; {since}")


def _named(tick: Tick) -> str:
    return f"the tick of schedule {tick.schedule} at {_text(tick.planned_at)}"


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
