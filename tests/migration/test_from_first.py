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


@killed
def test_killed_at_each_step_it_stays_the_first(old: Engine, database_url: str, first: int, stride: int) -> None:
    before = execute(old, *KEPT)
    with running("dying", database_url, first, stride) as process:
        assert deaths_that_leave(old, process, contents(old), ignore=BUILT_AHEAD) > 20 // stride
    assert current(old) == head()
    check(old)
    assert execute(old, *KEPT) == before
