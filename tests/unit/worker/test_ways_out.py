"""A worker that stops, a runner that dies: who is given back, who is charged, and when there is nothing left to do."""

from __future__ import annotations

from typing import cast

from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Crashed, Failed, JobError, Released, Succeeded
from holdfast.domain.wire import outcome_to_json
from holdfast.runners.process import Exit, RunnerProcess
from holdfast.worker.draining import Draining
from tests.unit.worker.test_leases import claimed
from tests.unit.worker.test_review import FakeRunner, Stage

NOW = 1000.0


class Polite(FakeRunner):
    """Hears that it is to give back what it has not started."""

    gave_back = False

    def give_back(self, *, draining: bool = False) -> None:
        self.gave_back = draining


def test_what_no_runner_has_started_is_given_back_at_once_when_the_worker_is_to_stop() -> None:
    stage, runner = Stage(), Polite()
    stage.pool._runners.append(cast(RunnerProcess, runner))
    stage.runs.take([claimed()], NOW)
    Draining(stage.runs, stage.pool, grace=30.0, term_grace=5.0).begin(NOW)
    assert [type(outcome) for outcome in stage.reported.values()] == [Released]
    assert runner.gave_back


def test_a_worker_has_not_stopped_while_a_report_is_on_its_way() -> None:
    stage = Stage()
    draining = Draining(stage.runs, stage.pool, grace=30.0, term_grace=5.0)
    draining.begin(NOW)
    held = stage.book.add(claimed(), TaskInfo("x"), NOW)
    held.reported = True
    assert not draining.step(NOW, undelivered=1), "its lease would be left to the reaper"
    stage.book.drop(held)
    assert not draining.step(NOW, undelivered=1), "a log line is still to be sent"
    assert draining.step(NOW, undelivered=0)


def test_the_death_of_a_runner_is_charged_to_what_it_had_started_and_to_nothing_else() -> None:
    stage = Stage()
    runner = stage.runner()
    started = stage.start(claimed(1), runner)
    queued = stage.book.add(claimed(2), TaskInfo("x"), NOW)
    queued.runner = cast(RunnerProcess, runner)
    runner.jobs = {started.id: True, queued.id: False}
    stage.ended(runner, Exit(None, 9), NOW)
    assert {name: type(outcome) for name, outcome in stage.reported.items()} == {started.id: Crashed}
    assert len(stage.runs.hand) == 1, "it goes to another runner"


def test_a_job_that_fails_because_the_worker_ends_it_is_released_and_not_charged() -> None:
    """Its code has a handler for TERM, say, and raises."""
    stage, runner = Stage(), Polite()
    stage.pool._runners.append(cast(RunnerProcess, runner))
    held = stage.start(claimed(), runner)
    draining = Draining(stage.runs, stage.pool, grace=30.0, term_grace=5.0)
    draining.begin(NOW)
    draining.step(NOW + 30.0, undelivered=0)
    assert runner.terminated
    failed = outcome_to_json(Failed(JobError("Interrupted", "told to stop")))
    done = {"t": "done", "id": held.id, "outcome": failed, "usage": {}}
    stage.runs.hear(cast(RunnerProcess, runner), done, NOW + 30.1)
    assert stage.reported == {held.id: Released("the worker stopped before it was done")}


def test_attempt_claimed_again_kills_older_execution_and_keeps_their_reports_apart() -> None:
    stage = Stage()
    runner, other = stage.runner(), stage.runner()
    older = stage.start(claimed(lease_token="first"), runner)
    stage.runs.take([claimed(lease_token="second")], NOW + 1)
    assert runner.killed == "lease lost"
    newer = next(held for held in stage.book if held is not older)
    newer.runner = cast(RunnerProcess, other)
    done = {"t": "done", "id": older.id, "outcome": outcome_to_json(Succeeded("older")), "usage": {}}
    stage.runs.hear(cast(RunnerProcess, runner), done, NOW + 2)
    assert stage.reported == {older.id: Succeeded("older")}, "under its own lease, which the store refuses"
    assert not newer.reported
    stage.book.drop(older)
    assert stage.book.get(newer.id) is newer
