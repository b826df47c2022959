"""A database of the first Holdfast, with work in it, comes to the head: nothing in it changes, and it goes on."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from holdfast.stores.guards import installed
from holdfast.stores.migrations import ahead
from holdfast.stores.upgrade import check, current, head, upgrade
from tests.migration.databases import contents, execute
from tests.migration.processes import running
from tests.migration.test_interruption import deaths_that_leave, killed

DATA = (
    "INSERT INTO holdfast_jobs (task, payload) VALUES ('first', '{\"a\": 1}')",
    "INSERT INTO holdfast_tasks (name, version, defaults) VALUES ('first', '7', '{\"queue\": \"slow\"}')",
    "INSERT INTO holdfast_queues (name, max_running) VALUES ('slow', 2)",
    "UPDATE holdfast_jobs SET state = 'cancelled' WHERE task = 'first'",
)
BUILT_AHEAD = {name for indexes in ahead.INDEXES.values() for name, _table, _definition in indexes}
KEPT = (
    "SELECT task, state, seq FROM holdfast_jobs",
    "SELECT seq, event, to_state FROM holdfast_events ORDER BY seq",
    "SELECT name, version FROM holdfast_tasks",
    "SELECT name, max_running FROM holdfast_queues",
)


@pytest.fixture
def old(engine: Engine, make_first: Callable[[Engine], None]) -> Engine:
    make_first(engine)
    execute(engine, *DATA)
    return engine


def test_everything_is_kept(old: Engine) -> None:
    before = execute(old, *KEPT)
    assert upgrade(old) == ("0001", head())
    check(old)
    assert execute(old, *KEPT) == before
    found = execute(old, installed.QUESTION[old.dialect.name])
    assert {row[:2] for row in found} == installed.expected(old.dialect.name)
    assert execute(old, "SELECT kind, on_lost_lease FROM holdfast_tasks") == [("sync", "kill")]
    execute(old, "INSERT INTO holdfast_jobs (task) VALUES ('later')")
    assert execute(old, "SELECT count(*) FROM holdfast_events") == [(len(before) - 3 + 1,)]


NONSENSE = {
    "postgresql": (
        "INSERT INTO holdfast_sources (name, paused_until) VALUES ('', NULL)",
        "INSERT INTO holdfast_sources (name, paused_until, last_success_at) VALUES ('late', 'infinity', '-infinity')",
        "INSERT INTO holdfast_sources (name, rate_limit_per_minute, breaker_pause_seconds, bucket_level)"
        " VALUES ('odd', 'NaN', 'Infinity', 'NaN')",
        "INSERT INTO holdfast_sources (name, burst, max_concurrent, breaker_threshold, failure_streak)"
        " VALUES ('many', 2000000, 2000000, 0, -3)",
    ),
    "sqlite": (
        "INSERT INTO holdfast_sources (name, paused_until) VALUES ('', NULL)",
        "INSERT INTO holdfast_sources (name, paused_until, last_success_at) VALUES ('late', '9999-12-31', 'yesterday')",
        "INSERT INTO holdfast_sources (name, rate_limit_per_minute, breaker_pause_seconds, bucket_level)"
        " VALUES ('odd', 'fast', 1e15, 'x')",
        "INSERT INTO holdfast_sources (name, burst, max_concurrent, breaker_threshold, failure_streak)"
        " VALUES ('many', 2000000, 2000000, 0, -3)",
        "INSERT INTO holdfast_sources (name, paused_until, rate_limit_per_minute, max_concurrent, enabled)"
        " VALUES ('typed', '2030-01-02 03:04:05', '100/m', 'many', 'no')",
        "INSERT INTO holdfast_queues (name, max_running) VALUES ('typed', 'many')",
    ),
}


def test_nonsense_in_a_source_is_repaired(old: Engine) -> None:
    execute(old, *NONSENSE[old.dialect.name])
    execute(
        old, "INSERT INTO holdfast_sources (name, rate_limit_per_minute, max_concurrent) VALUES ('well', 7.5, NULL)"
    )
    well = execute(old, "SELECT * FROM holdfast_sources WHERE name = 'well'")
    upgrade(old)
    assert execute(old, "SELECT * FROM holdfast_sources WHERE name = 'well'")[0][: len(well[0])] == well[0]
    text = "CAST(paused_until AT TIME ZONE 'UTC' AS text)" if old.dialect.name == "postgresql" else "paused_until"
    [(until, success)] = execute(old, f"SELECT {text}, last_success_at FROM holdfast_sources WHERE name = 'late'")
    assert (str(until)[:10], success) == ("9999-12-31", None)
    limits = "rate_limit_per_minute, burst, max_concurrent, breaker_threshold, breaker_pause_seconds, bucket_level"
    found = {row[0]: row[1:] for row in execute(old, f"SELECT name, {limits}, failure_streak FROM holdfast_sources")}
    assert found["odd"] == (None, 1, None, 5, 315_360_000, 0, 0)
    assert found["many"] == (None, 1_000_000, 1_000_000, 1, 300, 1, 0)
    assert "" not in found
    if old.dialect.name == "sqlite":
        [typed] = execute(old, "SELECT paused_until, enabled FROM holdfast_sources WHERE name = 'typed'")
        assert typed == ("2030-01-02T03:04:05.000000Z", 0)
        assert found["typed"][:3] == (100, 1, None)
        assert execute(old, "SELECT max_running FROM holdfast_queues WHERE name = 'typed'") == [(None,)]


@killed
def test_killed_at_each_step_it_stays_the_first(old: Engine, database_url: str, first: int, stride: int) -> None:
    before = execute(old, *KEPT)
    with running("dying", database_url, first, stride) as process:
        assert deaths_that_leave(old, process, contents(old), ignore=BUILT_AHEAD) > 20 // stride
    assert current(old) == head()
    check(old)
    assert execute(old, *KEPT) == before
