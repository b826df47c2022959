"""The same on Postgres: what is read there means the same."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.torture.planted import EXPECTED, HTTP, Run, opened_on_postgres, run_everything
from tests.torture.plants import leave_a_job_waiting, make_another_job_of_a_schedule


@pytest.fixture
def on_postgres(tmp_path: Path, postgres_database: str) -> Iterator[Run]:
    with opened_on_postgres(tmp_path / "run", postgres_database) as run:
        yield run


def test_a_healthy_run_is_clean_and_what_is_planted_in_it_is_found(on_postgres: Run) -> None:
    run = on_postgres
    run_everything(run)
    judged = run.judge()
    assert judged.broken == ()
    assert {rule for rule, things in judged.rules_checked.items() if not things} == {
        "running_without_lease",
        "slow_recovery",
        "idle_disconnect",
    }
    assert judged.load.by_door == {"contract": 2, "database": 23, "http": 2, "operator": 1, "redis": 1, "rq": 1}

    job_id = make_another_job_of_a_schedule(run)
    assert (run.broken().rule, run.broken().job_id) == ("tick_twice", job_id)
    leave_a_job_waiting(run)
    run.sql("DELETE FROM holdfast_schedule_ticks WHERE outcome = 'skipped'")
    [source] = EXPECTED.sources
    broken = run.judge(replace(EXPECTED, sources=(replace(source, max_concurrent=1),))).broken
    assert [each.rule for each in broken] == ["not_ended", "over_limit", "tick_twice", "tick_missed"]


def test_the_history_of_a_job_is_shown(on_postgres: Run) -> None:
    on_postgres.begin(on_postgres.enqueue("add"), HTTP)
    history = on_postgres.broken().history
    assert "+0.000 s  enqueued: ∅ → pending  attempt 0" in history
    [claimed] = [line for line in history if "claimed: pending → running" in line]
    assert claimed.startswith(f"+1.100 s  claimed: pending → running  attempt 1  {HTTP}  lease ")
