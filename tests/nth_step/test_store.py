"""Whatever a store does, and wherever it fails on the way: the caller is told, and may ask again."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.nth_step.breaking import Break, disk_is_full, file_is_malformed
from tests.nth_step.grounds import PostgresGround, SqliteGround
from tests.nth_step.scenarios import EVERY, Scenario
from tests.nth_step.trying import each, fail_at_each_step

# One of each kind; the others take the same ways.
SHORT = (
    "enqueue under an id",
    "enqueue in the user's transaction",
    "claim",
    "claim under limits by request id",
    "claim one whose lease has expired",
    "heartbeat",
    "settle: failure",
    "complete in the user's transaction",
    "reap",
    "fire schedules",
    "prune",
)
# Those whose statements differ most from SQLite's.
SHORT_ON_POSTGRES = (
    "enqueue in the user's transaction",
    "claim under limits by request id",
    "settle: failure",
    "complete in the user's transaction",
    "reap",
)
SHORTEST = ("replay under an id",)


def scenarios(dialect: str, short: Sequence[str] = SHORT) -> pytest.MarkDecorator:
    found = [
        pytest.param(scenario, id=scenario.name, marks=() if scenario.name in short else pytest.mark.long)
        for scenario in each(EVERY, dialect)
    ]
    return pytest.mark.parametrize("scenario", found)


@scenarios("sqlite")
def test_a_statement_that_fails_on_sqlite(sqlite_ground: SqliteGround, scenario: Scenario) -> None:
    fail_at_each_step(sqlite_ground, scenario)


@scenarios("postgres", SHORT_ON_POSTGRES)
def test_a_connection_that_breaks_on_postgres(postgres_ground: PostgresGround, scenario: Scenario) -> None:
    fail_at_each_step(postgres_ground, scenario)


@scenarios("sqlite", SHORTEST)
@pytest.mark.parametrize("break_", [disk_is_full, file_is_malformed])
def test_a_file_that_is_full_or_malformed(
    tmp_path: Path, migrated_file: Path, scenario: Scenario, break_: Break
) -> None:
    with closing(SqliteGround(tmp_path / "jobs.db", migrated_file, break_)) as ground:
        fail_at_each_step(ground, scenario)


@scenarios("sqlite", SHORTEST)
def test_a_disk_that_fails_from_then_on(sqlite_ground: SqliteGround, scenario: Scenario) -> None:
    """So that what cleans up fails as well; and with no connection yet, so that connecting does."""
    fail_at_each_step(sqlite_ground, scenario, lasts=True, cold=True)


@scenarios("postgres", SHORTEST)
def test_a_server_that_is_gone_from_then_on(postgres_ground: PostgresGround, scenario: Scenario) -> None:
    fail_at_each_step(postgres_ground, scenario, lasts=True, cold=True)
