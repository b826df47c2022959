"""Whatever a process does, and wherever it is killed on the way: another one can do it again, or go on."""

from collections.abc import Iterator

import pytest

from tests.nth_step.fault import Moment
from tests.nth_step.grounds import PostgresGround, SqliteGround
from tests.nth_step.mortal import Mortals
from tests.nth_step.scenarios import KILLED, Scenario
from tests.nth_step.trying import die_at_each_step, each


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as mortals:
        yield mortals


SHORT = {
    "sqlite": ("enqueue under an id", "claim by request id", "settle: failure", "reap"),
    "postgres": ("claim by request id", "settle: failure"),
}


def short_and_long(dialect: str) -> list[object]:
    """After each step, which is before the next one; and before each, where there is time to see that."""
    return [
        pytest.param(scenario, moment, id=f"{scenario.name}, {moment}", marks=() if is_short else pytest.mark.long)
        for scenario in each(KILLED, dialect)
        for moment in Moment
        for is_short in (scenario.name in SHORT[dialect] and moment is Moment.AFTER,)
    ]


@pytest.mark.parametrize(("scenario", "moment"), short_and_long("sqlite"))
def test_on_sqlite(sqlite_ground: SqliteGround, mortals: Mortals, scenario: Scenario, moment: Moment) -> None:
    die_at_each_step(sqlite_ground, scenario, mortals, [moment])


@pytest.mark.parametrize(("scenario", "moment"), short_and_long("postgres"))
def test_on_postgres(postgres_ground: PostgresGround, mortals: Mortals, scenario: Scenario, moment: Moment) -> None:
    die_at_each_step(postgres_ground, scenario, mortals, [moment])
