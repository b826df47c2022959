"""Five schedulers over one store, killed and replaced at random: each tick exactly once, each with exactly one job.

What nobody was there for is made up for (`misfire="all"`): not one instant may be missing.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.schedule import Declaration
from holdfast.stores.database import utc_now
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import upgrade
from tests.chaos.crew import REPOSITORY
from tests.chaos.databases import assert_verified, deadlocks, is_sqlite, query
from tests.chaos.schedulers import COUNT, SCHEDULERS, SPEED, fast_store

SCHEDULES = 16
EVERY_SECONDS = 10.0  # of the fast clock


def make_postgres_fast(url: str, base: datetime) -> None:
    since = f"timestamptz ''{base.isoformat()}''"
    query(
        url,
        "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
        f" AS 'SELECT {since} + (clock_timestamp() - {since}) * {SPEED}'",
    )


def fire_and_kill(url: str, ticks: int, kills: int) -> None:
    base = utc_now()
    if not is_sqlite(url):
        make_postgres_fast(url, base)
    names = [f"every-{number:02}" for number in range(SCHEDULES)]
    declared = [
        Declaration(name=name, task="tick", every_seconds=EVERY_SECONDS, misfire="all", misfire_limit=1_000)
        for name in names
    ]
    with fast_store(url, base) as store:
        assert store.announce_schedules(declared) == ()
    command = [sys.executable, "-m", "tests.chaos.schedulers", url, base.isoformat(), str(ticks), str(kills)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=300)
    for name in names:
        assert_each_instant_fired_once(url, name)
    assert_one_job_a_tick(url)
    assert deadlocks(url) == 0
    assert_verified(url)


def moment(value: str | datetime) -> datetime:
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def assert_each_instant_fired_once(url: str, name: str) -> None:
    """From the first to the last without a gap; the row's key is what forbids a second."""
    [(anchor, last)] = query(url, f"SELECT anchor_at, last_at FROM holdfast_schedules WHERE name = '{name}'")
    ticks = query(url, f"SELECT planned_at, outcome FROM holdfast_schedule_ticks WHERE schedule = '{name}' ORDER BY 1")
    step = timedelta(seconds=EVERY_SECONDS)
    expected = [moment(anchor) + step * number for number in range(1, (moment(last) - moment(anchor)) // step + 1)]
    assert [moment(planned) for planned, _ in ticks] == expected
    assert {outcome for _, outcome in ticks} == {"fired"}


def assert_one_job_a_tick(url: str) -> None:
    """Joined by the job's id, and every job belongs to a tick of its own."""
    [(ticks,)] = query(url, COUNT)
    [(joined, different)] = query(
        url,
        """SELECT count(*), count(DISTINCT j.id) FROM holdfast_schedule_ticks t
           JOIN holdfast_jobs j ON j.id = t.job_id AND j.run_after = t.planned_at""",
    )
    [(jobs,)] = query(url, "SELECT count(*) FROM holdfast_jobs")
    holders = query(url, "SELECT DISTINCT holder FROM holdfast_schedule_ticks")
    assert (joined, different, jobs) == (ticks, ticks, ticks)
    later = [holder for (holder,) in holders if int(holder.removeprefix("scheduler-")) >= SCHEDULERS]
    assert later, "those who took over had no share"


def test_who_sleeps_between_its_look_and_its_turn_takes_nothing_for_the_future(sqlite_url: str) -> None:
    """It looks with a clock that is old by the time it sees what another one fired meanwhile."""
    base = utc_now()
    upgrade(open_sqlite(sqlite_url).engine)

    def store_at(*seconds: float) -> SqlStore:
        moments = iter([base + timedelta(seconds=second) for second in seconds])
        last = base + timedelta(seconds=seconds[-1])
        return SqlStore(open_sqlite(sqlite_url, clock=lambda: next(moments, last)))

    with closing(store_at(0)) as store:
        store.announce_schedules([Declaration(name="every", task="tick", every_seconds=600.0)])
    with closing(store_at(601)) as store:
        assert len(store.fire_schedules("awake").ticks) == 1
        fired = store.schedule("every")
    with closing(store_at(100, 602)) as store:
        assert store.fire_schedules("sleeper").ticks == ()
        assert store.schedule("every") == fired


def test_each_of_a_thousand_ticks_fires_once_while_schedulers_are_killed(store_url: str) -> None:
    fire_and_kill(store_url, 1_000, kills=40)


@pytest.mark.long
def test_each_of_ten_thousand_ticks_fires_once_while_schedulers_are_killed(store_url: str) -> None:
    fire_and_kill(store_url, 10_000, kills=400)
