"""Which of the due instants fire, and what may be declared. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.schedule import Declaration, Firing, LeftOut, Schedule, due, overridden

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def minutes(*numbers: float) -> tuple[datetime, ...]:
    """So many minutes after noon."""
    return tuple(NOON + timedelta(minutes=number) for number in numbers)


def left_out(first: float, last: float, count: int) -> LeftOut:
    return LeftOut(minutes(first)[0], minutes(last)[0], count, False)


def schedule(**values: Any) -> Schedule:
    """Every ten minutes; next at noon."""
    plain: dict[str, Any] = {
        "name": "tidy",
        "task": "tidy_up",
        "job": {},
        "cron": None,
        "every_seconds": 600.0,
        "anchor_at": NOON,
        "timezone": "UTC",
        "misfire": "once",
        "misfire_limit": 1,
        "misfire_grace_seconds": 60.0,
        "tick_argument": None,
        "declared": None,
        "declared_at": None,
        "overrides": {},
        "paused_at": None,
        "next_at": NOON,
        "last_at": None,
        "revision": 1,
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Schedule(**{**plain, **values})


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_what_is_on_time_fires_whatever_the_policy(misfire: str) -> None:
    decided = due(schedule(misfire=misfire), NOON + timedelta(seconds=60))
    assert decided == Firing(minutes(0), None, minutes(10)[0])


@pytest.mark.parametrize(
    ("policy", "fires", "leaves"),
    [
        ({"misfire": "skip"}, (), left_out(0, 20, 3)),
        ({"misfire": "skip", "misfire_grace_seconds": 120}, minutes(20), left_out(0, 10, 2)),
        ({"misfire": "once"}, minutes(20), left_out(0, 10, 2)),
        ({"misfire": "all", "misfire_limit": 10}, minutes(0, 10, 20), None),
        ({"misfire": "all", "misfire_limit": 2}, minutes(10, 20), left_out(0, 0, 1)),
    ],
)
def test_three_that_were_missed(policy: dict[str, Any], fires: tuple[datetime, ...], leaves: LeftOut | None) -> None:
    [now] = minutes(22)
    assert due(schedule(**policy), now) == Firing(fires, leaves, minutes(30)[0])


def test_the_next_one_is_later_than_now_and_not_now() -> None:
    assert due(schedule(), NOON).next_at == minutes(10)[0]


def test_what_was_missed_is_counted_only_so_far() -> None:
    late = schedule(cron="* * * * *", every_seconds=None)
    decided = due(late, NOON + timedelta(days=365))
    assert decided.fire == (NOON + timedelta(days=365),)
    assert decided.left_out is not None
    assert (decided.left_out.count, decided.left_out.more) == (999, True)
    exactly = due(late, NOON + timedelta(minutes=999))
    assert exactly.left_out is not None
    assert (exactly.left_out.count, exactly.left_out.more) == (999, False)


def test_what_is_stored_counts_also_where_the_rule_would_not_say_it() -> None:
    """Typed by an operator, or computed when the zone had other rules."""
    moved = schedule(cron="0 9 * * *", every_seconds=None, timezone="Europe/Berlin")
    assert due(moved, NOON + timedelta(seconds=1)) == Firing((NOON,), None, datetime(2026, 11, 17, 8, tzinfo=UTC))


def test_a_job_is_due_at_its_instant_and_may_be_told_it() -> None:
    told = schedule(job={"payload": {"a": 1}, "queue": "q"}, tick_argument="at").job_at(NOON)
    assert (told.payload, told.queue, told.run_after) == ({"a": 1, "at": "2026-11-16T12:00:00Z"}, "q", NOON)


def declare(**values: Any) -> Declaration:
    return Declaration(**{"name": "tidy", "task": "tidy_up", "cron": "0 9 * * *", **values})


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"task": "a\nb"}, "task"),
        ({"cron": None}, "cron"),
        ({"every_seconds": 60}, "every"),
        ({"cron": None, "every_seconds": 0.5}, "every"),
        ({"cron": "0 9 * *"}, "cron"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"misfire": "sometimes"}, "misfire"),
        ({"misfire_limit": 0}, "misfire_limit"),
        ({"misfire_limit": 1001}, "misfire_limit"),
        ({"misfire_grace_seconds": -1}, "misfire_grace"),
        ({"misfire_grace_seconds": 4.9}, "misfire_grace"),
        ({"tick_argument": ""}, "tick"),
        ({"job": []}, "job"),
        ({"job": {"payload": []}}, "payload"),
        ({"job": {"payload": {"a": float("nan")}}}, "payload.a"),
        ({"job": {"priority": 101}}, "priority"),
        ({"job": {"colour": "red"}}, "colour"),
        ({"job": {"run_after": "now"}}, "run_after"),
        ({"job": {"delay": 1}}, "delay"),
        ({"job": {"id": "x"}}, "id"),
    ],
)
def test_a_declaration_that_could_not_fire_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        declare(**values)
    assert refused.value.field == field


def test_a_grace_in_which_nobody_could_look_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match=r"at least 5 s, got 0 s: .* a moment late, and with misfire=skip nothing"):
        declare(misfire="skip", misfire_grace_seconds=0)
    assert declare(misfire="skip", misfire_grace_seconds=5).misfire_grace_seconds == 5.0


def test_what_a_clock_ahead_has_planned_is_planned_anew() -> None:
    [year_off] = minutes(365 * 24 * 60)
    ahead = schedule(next_at=year_off, last_at=year_off, updated_at=year_off)
    assert due(ahead, NOON) == Firing((), None, minutes(10)[0])
    assert (ahead.in_time(NOON).next_at, ahead.in_time(NOON).last_at) == (minutes(10)[0], None)
    in_time = schedule(next_at=year_off)  # typed by somebody: it stands
    assert in_time.in_time(NOON) is in_time


def test_all_makes_up_for_ten_unless_told_otherwise() -> None:
    assert (declare().misfire_limit, declare(misfire="all").misfire_limit) == (1, 10)
    assert declare(misfire="all", misfire_limit=3).misfire_limit == 3


def test_a_declaration_comes_back_from_json() -> None:
    full = declare(job={"payload": {"a": 1.0}}, misfire="all", tick_argument="at", timezone="Asia/Kolkata")
    assert Declaration.from_json("tidy", full.to_json()) == full
    with pytest.raises(InvalidInput, match="colour: unknown option"):
        Declaration.from_json("tidy", {"task": "a", "colour": "red"})


def test_one_kind_of_timing_takes_the_place_of_the_other() -> None:
    declared = declare(job={"payload": {"a": 1}, "queue": "q"}).to_json()
    changed = overridden(declared, {"every_seconds": 60, "job": {"queue": "r"}})
    assert (changed["cron"], changed["every_seconds"]) == (None, 60)
    assert changed["job"] == {"payload": {"a": 1}, "queue": "r"}
    back = overridden(changed, {"cron": "0 8 * * *"})
    assert (back["cron"], back["every_seconds"]) == ("0 8 * * *", None)
