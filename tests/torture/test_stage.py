"""What shows that a fault is over: leases that have moved on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Released, Report, Succeeded
from holdfast.torture import stage as stages
from holdfast.torture.crew import Crew
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Notebook
from holdfast.torture.stage import HeldJob, Stage
from holdfast.wiring.sql import open_store


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(open_store(url)) as store, closing(Notebook(tmp_path, "torture")) as notebook:
        yield Stage(Ground(url), store, Crew(tmp_path, [], 0.0), {}, None, {}, notebook, lease_seconds=60.0)


class Time:
    """The stage's clock: a pause is over at once, and something happens in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *events: Callable[[], object]) -> None:
        self.now = 0.0
        self.pauses = 0
        self._events = iter(events)
        monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1
        next(self._events, lambda: None)()


def claimed(stage: Stage, count: int) -> list[Claimed]:
    for _ in range(count):
        stage.store.enqueue(NewJob(task="work"))
    return stage.store.claim("ann", count)


def held(jobs: list[Claimed]) -> list[HeldJob]:
    return [HeldJob(job.job_id, job.attempt) for job in jobs]


def test_leases_have_moved_when_each_job_has_ended_or_runs_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, again, later = jobs = claimed(stage, 3)

    def settle(job: Claimed, outcome: Released | Succeeded) -> None:
        assert stage.store.settle([Report(job.job_id, job.attempt, job.lease_token, outcome)])[0].ok

    def run_again() -> None:
        settle(again, Released())
        assert stage.store.claim_job("bob", again.job_id)

    time = Time(monkeypatch, lambda: settle(ends, Succeeded()), run_again, lambda: settle(later, Succeeded()))
    assert stage.wait_moved(held(jobs), 60.0)
    assert time.pauses == 3, "not before the last of them"


def test_leases_that_do_not_move_are_waited_for_until_the_time_is_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(stage, 1)
    time = Time(monkeypatch)
    assert not stage.wait_moved(held(jobs), 5.0)
    assert 5.0 < time.now <= 5.0 + 2 * stages.LOOK_SECONDS


def test_leases_are_not_waited_for_when_the_run_is_broken_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = claimed(stage, 1)
    time = Time(monkeypatch, stage.stop.set)
    assert not stage.wait_moved(held(jobs), 5.0)
    assert time.pauses == 1


def test_no_leases_have_moved_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    assert stage.wait_moved([], 5.0)
    assert time.pauses == 0


def test_leases_in_a_database_that_is_away_have_not_moved(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(stage, 1)
    away = tmp_path / "away.db"
    engine = stage.store.database.engine

    def come_back() -> None:
        monkeypatch.setattr(stage.store.database, "engine", engine)
        assert stage.store.settle([Report(jobs[0].job_id, jobs[0].attempt, jobs[0].lease_token, Succeeded())])[0].ok

    with closing(open_store(f"sqlite:///{away}")) as empty:
        empty.database.engine.dispose()
        away.unlink()
        away.mkdir()  # "unable to open database file"
        monkeypatch.setattr(stage.store.database, "engine", empty.database.engine)
        time = Time(monkeypatch, lambda: None, come_back)
        assert stage.wait_moved(held(jobs), 60.0)
    assert time.pauses == 2
