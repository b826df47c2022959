"""An upgrade that is killed leaves the database as it was, and the next one brings it to the head."""

from collections.abc import Collection

import pytest
from sqlalchemy import Engine

from holdfast.stores.upgrade import check, current, head, upgrade
from tests.migration.databases import Contents, contents, drop_a_trigger, execute, outdate_guards, transaction
from tests.migration.processes import Process, running
from tests.servers.waiting import wait_until

_OF_INDEXES = ("index", "relation")

killed = pytest.mark.parametrize(
    ("first", "stride"),
    [pytest.param(3, 17, id="at some steps"), pytest.param(1, 1, id="at each step", marks=pytest.mark.long)],
)


def deaths_that_leave(engine: Engine, process: Process, before: Contents, ignore: Collection[str] = ()) -> int:
    """The number of kills until an upgrade ended alive; after each, the database is as it was before, apart from the
    indexes to ignore."""
    deaths = 0
    while (word := process.read()) == "killed":
        deaths += 1
        found = [row for row in contents(engine) if row[0] not in _OF_INDEXES or not {row[1], row[2]} & set(ignore)]
        assert found == before, f"after the kill at step {deaths}"
        process.go_on()
    assert word == "finished"
    return deaths


@killed
def test_first_upgrade_killed_at_each_step(engine: Engine, database_url: str, first: int, stride: int) -> None:
    with running("dying", database_url, first, stride) as process:
        assert deaths_that_leave(engine, process, before=[]) > 40 // stride
    check(engine)


@killed
def test_change_of_guards_killed_at_each_step(engine: Engine, database_url: str, first: int, stride: int) -> None:
    upgrade(engine)
    complete = contents(engine)
    outdate_guards(engine)
    drop_a_trigger(engine)
    with running("dying", database_url, first, stride) as process:
        assert deaths_that_leave(engine, process, before=contents(engine)) > 20 // stride
    check(engine)
    assert contents(engine) == complete


def test_killed_from_outside_while_it_waits(postgres_engine: Engine, postgres_database: str) -> None:
    upgrade(postgres_engine)
    outdate_guards(postgres_engine)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'holdfast_events'::regclass"
    with running("upgrading", postgres_database) as process, transaction(postgres_engine) as other:
        other.exec_driver_sql("LOCK TABLE holdfast_events IN ACCESS SHARE MODE")
        assert process.read() == "ready"
        process.go_on()
        wait_until(lambda: execute(postgres_engine, waiting) == [(1,)], what="the upgrade waits for the table")
        process.kill()
    # The server notices the death only when the wait is over; the next upgrade has the patience for that.
    assert upgrade(postgres_engine) == (head(), head())
    check(postgres_engine)
    assert current(postgres_engine) == head()
