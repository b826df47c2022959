"""From wall times to instants. The expected instants are written down by hand, from each zone's own law."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from holdfast.domain.cron import Cron, Every, rule_of
from holdfast.domain.errors import InvalidInput


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


def first(rule: Cron, after: str, count: int) -> list[datetime]:
    return list(islice(rule.after(at(after)), count))


# zone, expression, after (UTC), the instants that follow (UTC)
WALL_TIMES = {
    "berlin forward: 02:30 is skipped on 29 March, at 01:00 UTC": (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-03-27T12:00",
        ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"],
    ),
    "berlin back: 02:30 is shown twice on 25 October": (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-10-23T12:00",
        ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"],
    ),
    "berlin forward: several skipped times are one instant": (
        "Europe/Berlin",
        "*/30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:00", "2026-03-30T00:00", "2026-03-30T00:30"],
    ),
    "berlin back: */30 of the double hour runs in the first one": (
        "Europe/Berlin",
        "*/30 2 * * *",
        "2026-10-24T12:00",
        ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-26T01:00", "2026-10-26T01:30"],
    ),
    "berlin forward: 02:00 and 03:00 are the same instant": (
        "Europe/Berlin",
        "0 1,2,3 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T23:00", "2026-03-30T00:00", "2026-03-30T01:00"],
    ),
    "berlin back: a list of hours": (
        "Europe/Berlin",
        "0 1,2,3 * * *",
        "2026-10-24T12:00",
        ["2026-10-24T23:00", "2026-10-25T00:00", "2026-10-25T02:00", "2026-10-26T00:00"],
    ),
    "berlin forward: a range of hours": (
        "Europe/Berlin",
        "15 1-3 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T00:15", "2026-03-29T01:00", "2026-03-29T01:15", "2026-03-29T23:15"],
    ),
    "berlin: working days over a weekend of change": (
        "Europe/Berlin",
        "0 9 * * mon-fri",
        "2026-03-26T12:00",
        ["2026-03-27T08:00", "2026-03-30T07:00", "2026-03-31T07:00"],
    ),
    "berlin: seconds of a skipped time": (
        "Europe/Berlin",
        "15 30 2 * * *",
        "2026-03-28T00:00",
        ["2026-03-28T01:30:15", "2026-03-29T01:00", "2026-03-30T00:30:15"],
    ),
    "new york forward: 02:30 is skipped on 8 March, at 07:00 UTC": (
        "America/New_York",
        "30 2 * * *",
        "2026-03-07T00:00",
        ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"],
    ),
    "new york back: 01:30 is shown twice on 1 November": (
        "America/New_York",
        "30 1 * * *",
        "2026-10-31T00:00",
        ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"],
    ),
    "lord howe forward by half an hour: 02:15 is skipped on 4 October, at 15:30 UTC the day before": (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2026-10-02T12:00",
        ["2026-10-02T15:45", "2026-10-03T15:30", "2026-10-04T15:15"],
    ),
    "lord howe forward: 02:45 is not skipped": (
        "Australia/Lord_Howe",
        "45 2 * * *",
        "2026-10-02T12:00",
        ["2026-10-02T16:15", "2026-10-03T15:45", "2026-10-04T15:45"],
    ),
    "lord howe back by half an hour: 01:45 is shown twice on 5 April": (
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2026-04-03T00:00",
        ["2026-04-03T14:45", "2026-04-04T14:45", "2026-04-05T15:15"],
    ),
    "lord howe back: 01:15 is shown once": (
        "Australia/Lord_Howe",
        "15 1 * * *",
        "2026-04-03T00:00",
        ["2026-04-03T14:15", "2026-04-04T14:15", "2026-04-05T14:45"],
    ),
    "apia: there was no 30 December 2011, from 10:00 UTC on it was the 31st": (
        "Pacific/Apia",
        "0 12 * * *",
        "2011-12-28T00:00",
        ["2011-12-28T22:00", "2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00", "2011-12-31T22:00"],
    ),
    "apia: a yearly time on the day that was not": (
        "Pacific/Apia",
        "30 17 30 12 *",
        "2010-12-01T00:00",
        ["2010-12-31T03:30", "2011-12-30T10:00", "2012-12-30T03:30"],
    ),
    "sao paulo forward at midnight: 00:30 was skipped on 4 November 2018": (
        "America/Sao_Paulo",
        "30 0 * * *",
        "2018-11-03T00:00",
        ["2018-11-03T03:30", "2018-11-04T03:00", "2018-11-05T02:30"],
    ),
    "sao paulo back at midnight: 23:30 was shown twice on 16 February 2019": (
        "America/Sao_Paulo",
        "30 23 * * *",
        "2019-02-15T12:00",
        ["2019-02-16T01:30", "2019-02-17T01:30", "2019-02-18T02:30"],
    ),
    "sao paulo changed nothing any more in November 2019": (
        "America/Sao_Paulo",
        "30 0 * * *",
        "2019-11-02T00:00",
        ["2019-11-02T03:30", "2019-11-03T03:30", "2019-11-04T03:30"],
    ),
    "kolkata is half an hour off, all year": (
        "Asia/Kolkata",
        "0 9 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T03:30", "2026-03-30T03:30"],
    ),
    "dublin, whose winter is the exception, forward": (
        "Europe/Dublin",
        "30 1 * * *",
        "2026-03-28T00:00",
        ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    "dublin back": (
        "Europe/Dublin",
        "30 1 * * *",
        "2026-10-23T12:00",
        ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    "casablanca back for Ramadan on 10 March 2024": (
        "Africa/Casablanca",
        "30 2 * * *",
        "2024-03-09T00:00",
        ["2024-03-09T01:30", "2024-03-10T01:30", "2024-03-11T02:30"],
    ),
    "casablanca forward after it, on 14 April 2024": (
        "Africa/Casablanca",
        "30 2 * * *",
        "2024-04-13T00:00",
        ["2024-04-13T02:30", "2024-04-14T02:00", "2024-04-15T01:30"],
    ),
    "utc has no such days": (
        "UTC",
        "30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T02:30", "2026-03-30T02:30"],
    ),
    "the last day of the month": (
        "UTC",
        "0 0 L * *",
        "2028-01-15T00:00",
        ["2028-01-31T00:00", "2028-02-29T00:00", "2028-03-31T00:00"],
    ),
    "the last working day of the month": (
        "UTC",
        "0 0 LW * *",
        "2026-01-15T00:00",
        ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-31T00:00"],
    ),
    "the third friday": (
        "UTC",
        "0 0 * * fri#3",
        "2026-01-01T00:00",
        ["2026-01-16T00:00", "2026-02-20T00:00", "2026-03-20T00:00"],
    ),
    "the last friday": ("UTC", "0 0 * * 5L", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00"]),
    "the leap day": ("UTC", "0 12 29 2 *", "2026-01-01T00:00", ["2028-02-29T12:00", "2032-02-29T12:00"]),
    "the 13th, and every friday": (
        "UTC",
        "0 0 13 * fri",
        "2026-04-08T00:00",
        ["2026-04-10T00:00", "2026-04-13T00:00", "2026-04-17T00:00"],
    ),
    "new year, to the second": ("UTC", "30 0 0 1 1 *", "2026-06-01T00:00", ["2027-01-01T00:00:30"]),
}

STEADY = {
    "berlin forward: hourly is hourly": (
        "Europe/Berlin",
        "0 * * * *",
        "2026-03-28T23:30",
        ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00", "2026-03-29T03:00"],
    ),
    "berlin back: also in the hour that comes twice": (
        "Europe/Berlin",
        "30 * * * *",
        "2026-10-24T23:45",
        ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
    ),
    "berlin back: hours that are all listed are all hours": (
        "Europe/Berlin",
        "30 0-23 * * *",
        "2026-10-24T23:45",
        ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
    ),
    "berlin back: every half hour of the day of 25 hours": (
        "Europe/Berlin",
        "*/30 * * * *",
        "2026-10-24T23:45",
        ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"],
    ),
    "berlin back: all sunday long, which has 25 hours": (
        "Europe/Berlin",
        "0 * * * sun",
        "2026-10-25T20:30",
        ["2026-10-25T21:00", "2026-10-25T22:00", "2026-10-31T23:00"],
    ),
    "lord howe forward: the clock never shows 02:00": (
        "Australia/Lord_Howe",
        "0 * * * *",
        "2026-10-03T14:00",
        ["2026-10-03T14:30", "2026-10-03T16:00", "2026-10-03T17:00"],
    ),
    "lord howe back: the clock shows 01:45 twice": (
        "Australia/Lord_Howe",
        "45 * * * *",
        "2026-04-04T14:00",
        ["2026-04-04T14:45", "2026-04-04T15:15", "2026-04-04T16:15"],
    ),
    "apia: the hours of the day that was not": (
        "Pacific/Apia",
        "0 * * * *",
        "2011-12-30T08:30",
        ["2011-12-30T09:00", "2011-12-30T10:00", "2011-12-30T11:00"],
    ),
}


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), WALL_TIMES.values(), ids=WALL_TIMES)
def test_wall_times_become_the_instants_that_the_law_says(
    zone: str, expression: str, after: str, expected: list[str]
) -> None:
    rule = Cron(expression, zone)
    assert first(rule, after, len(expected)) == [at(text) for text in expected]
    assert rule.next_after(at(after)) == at(expected[0])


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), STEADY.values(), ids=STEADY)
def test_expressions_for_every_hour_follow_the_clock(
    zone: str, expression: str, after: str, expected: list[str]
) -> None:
    assert first(Cron(expression, zone), after, len(expected)) == [at(text) for text in expected]


@pytest.mark.parametrize("name", [*WALL_TIMES, *STEADY])
def test_the_latest_are_found_from_the_end(name: str) -> None:
    zone, expression, after, expected = (WALL_TIMES | STEADY)[name]
    rule, instants = Cron(expression, zone), [at(text) for text in expected]
    start, until = at(after), instants[-1]
    assert rule.latest(start, until, 1) == instants[-1:]
    assert rule.latest(start, until, 100) == instants
    assert rule.latest(instants[0], until, 100) == instants, "the first one counts"
    assert rule.latest(start, until - timedelta(microseconds=1), 100) == instants[:-1]
    assert rule.latest(start, instants[0] - timedelta(seconds=1), 100) == []


def clock_of(zone: ZoneInfo, start: datetime, days: int) -> Iterator[tuple[datetime, datetime]]:
    """A clock on a wall, minute by minute: the instant, and what it shows."""
    for minute in range(days * 24 * 60):
        instant = start + timedelta(minutes=minute)
        yield instant, instant.astimezone(zone).replace(tzinfo=None, fold=0)


CHANGES = [
    ("Europe/Berlin", "2026-03-28T00:00"),
    ("Europe/Berlin", "2026-10-24T00:00"),
    ("Australia/Lord_Howe", "2026-10-03T00:00"),
    ("Australia/Lord_Howe", "2026-04-04T00:00"),
    ("Pacific/Apia", "2011-12-29T00:00"),
    ("America/Sao_Paulo", "2018-11-03T00:00"),
    ("America/Sao_Paulo", "2019-02-16T00:00"),
]


@pytest.mark.parametrize(("zone", "start"), CHANGES)
@pytest.mark.parametrize("hours", [{0, 1, 2, 3, 12, 23}, {1, 2}])
def test_a_time_runs_when_the_clock_has_come_that_far_for_the_first_time(
    zone: str, start: str, hours: set[int]
) -> None:
    """Against a clock that is watched for three days."""
    minutes = {0, 15, 40}
    expected, furthest = [], None
    for instant, shown in clock_of(ZoneInfo(zone), at(start), 3):
        if furthest is not None and shown > furthest:
            passed = [
                furthest + timedelta(minutes=n) for n in range(1, int((shown - furthest).total_seconds()) // 60 + 1)
            ]
            if any(wall.minute in minutes and wall.hour in hours for wall in passed):
                expected.append(instant)
        furthest = shown if furthest is None else max(furthest, shown)
    rule = Cron(f"0,15,40 {','.join(map(str, sorted(hours)))} * * *", zone)
    assert first(rule, start, len(expected)) == expected
    assert len(expected) > 10


@pytest.mark.parametrize(("zone", "start"), CHANGES)
@pytest.mark.parametrize("minutes", ["45", "0,15,40", "*/7"])
def test_what_runs_every_hour_runs_whenever_the_clock_shows_its_minute(zone: str, start: str, minutes: str) -> None:
    wanted = set(range(0, 60, 7)) if minutes == "*/7" else {int(minute) for minute in minutes.split(",")}
    shown = clock_of(ZoneInfo(zone), at(start) + timedelta(minutes=1), 3)
    expected = [instant for instant, wall in shown if wall.minute in wanted]
    assert first(Cron(f"{minutes} * * * *", zone), start, len(expected)) == expected


def test_what_runs_every_hour_of_a_few_days_finds_them_years_ahead() -> None:
    rule = Cron("0 * 29 2 *", "Europe/Berlin")
    found = first(rule, "2026-03-01T00:00", 25)
    assert (found[0], found[23], found[24]) == (at("2028-02-28T23:00"), at("2028-02-29T22:00"), at("2032-02-28T23:00"))


def test_a_year_of_minutes_is_not_walked_to_find_the_last_ones() -> None:
    rule = Cron("* * * * *", "Europe/Berlin")
    until = at("2026-11-16T12:00:30")
    found = rule.latest(at("2000-01-01T00:00"), until, 1000)
    assert (len(found), found[-1], found[0]) == (1000, at("2026-11-16T12:00"), at("2026-11-15T19:21"))


def test_an_interval_is_counted_from_its_anchor() -> None:
    rule = Every(600, at("2026-01-01T00:03"))
    assert rule.next_after(at("2026-01-01T00:03")) == at("2026-01-01T00:13")
    assert rule.next_after(at("2026-01-01T00:12:59")) == at("2026-01-01T00:13")
    assert rule.next_after(at("2025-12-31T23:59")) == at("2026-01-01T00:03")
    assert rule.latest(at("2026-01-01T00:03"), at("2026-01-01T00:33"), 2) == [
        at("2026-01-01T00:23"),
        at("2026-01-01T00:33"),
    ]
    assert len(rule.latest(at("2026-01-01T00:03"), at("2026-01-01T00:33"), 100)) == 4
    assert rule.latest(at("2026-01-01T00:04"), at("2026-01-01T00:12"), 100) == []


def test_an_interval_does_not_drift() -> None:
    rule = Every(1.1, at("2026-01-01T00:00"))
    moment = at("2026-01-01T00:00")
    for _ in range(1000):
        found = rule.next_after(moment)
        assert found is not None
        moment = found
    assert moment == at("2026-01-01T00:18:20")


@pytest.mark.parametrize(
    ("expression", "saying"),
    [
        ("", "empty"),
        ("* * * *", "five fields.*wrong number of fields"),
        ("61 * * * *", "bad minute"),
        ("0 25 * * *", "bad hour"),
        ("0 9 * * fry", "bad day-of-week"),
        ("0 9 * * mon#6", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 31 2 *", "have no such day"),
        ("0 0 31 2,4 *", "have no such day"),
        ("0 0 */31 2 2#5", "never comes"),
        ("@daily", "five fields"),
        ("0 9\n* * *", "control characters"),
    ],
)
def test_an_expression_that_cannot_be_or_never_comes_is_refused(expression: str, saying: str) -> None:
    with pytest.raises(InvalidInput, match=f"^cron: .*{saying}"):
        Cron(expression)


@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "../etc/passwd", "/etc/localtime", "europe/berlin"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match=r"^timezone: .*Europe/Berlin or UTC"):
        Cron("0 9 * * *", zone)
    with pytest.raises(InvalidInput, match="timezone"):
        rule_of(None, 60, zone, at("2026-01-01T00:00"))


@pytest.mark.parametrize("seconds", [0.5, 0, -1, float("nan"), float("inf"), 1e12])
def test_an_interval_has_bounds(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="every"):
        Every(seconds, at("2026-01-01T00:00"))


def test_one_of_the_two_is_needed() -> None:
    anchor = at("2026-01-01T00:00")
    with pytest.raises(InvalidInput, match="cron"):
        rule_of(None, None, "UTC", anchor)
    with pytest.raises(InvalidInput, match="choose one"):
        rule_of("* * * * *", 60, "UTC", anchor)
