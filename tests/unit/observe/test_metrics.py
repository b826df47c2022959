"""Each event moves exactly the numbers it should."""

import pytest
from prometheus_client import CollectorRegistry

from holdfast.domain.events import (
    Beats,
    Claims,
    Event,
    Problem,
    Reaping,
    StoreFailed,
    UpkeepFailed,
    UpkeepStep,
    WakeUps,
    WorkerMoved,
)
from holdfast.domain.worker_states import RunState, WorkerState
from holdfast.observe import series
from holdfast.observe.metrics import MetricsSubscriber
from tests.unit.observe.samples import EVERY_KIND, lease_gone, run_ended, run_moved, runner_ended


class Board:
    """A registry with the subscriber, and a short way to read a number."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._subscriber = MetricsSubscriber(self.registry)

    def see(self, *events: Event) -> None:
        for event in events:
            self._subscriber(event)

    def read(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"holdfast_{name}", labels)

    def states(self, name: str) -> dict[str, float]:
        return {
            next(iter(sample.labels.values())): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"holdfast_{name}" and sample.value
        }


@pytest.fixture
def board() -> Board:
    return Board()


def test_every_kind_of_event_is_taken(board: Board) -> None:
    board.see(*EVERY_KIND)


def test_exactly_the_workers_state_is_one(board: Board) -> None:
    assert board.states("worker_state") == {"starting": 1}
    board.see(WorkerMoved(WorkerState.STARTING, WorkerState.CONNECTING))
    assert board.states("worker_state") == {"connecting": 1}
    assert board.read("worker_state", state="idle") == 0, "a state that was never reached is there as well"


def test_runs_are_counted_in_the_state_they_are_in(board: Board) -> None:
    board.see(run_moved(None, RunState.CLAIMING), run_moved(None, RunState.CLAIMING))
    board.see(run_moved(RunState.CLAIMING, RunState.PROCESSING))
    assert board.states("job_runs") == {"claiming": 1, "processing": 1}
    board.see(run_moved(RunState.PROCESSING, RunState.REPORTING_SUCCESS), run_moved(RunState.REPORTING_SUCCESS, None))
    board.see(run_moved(RunState.CLAIMING, None))
    assert board.states("job_runs") == {}


def test_claims_are_counted_with_their_jobs_and_their_time(board: Board) -> None:
    board.see(Claims(10, 0.003), Claims(0, 0.001))
    assert board.read("claims_total") == 2
    assert board.read("claimed_jobs_total") == 10
    assert board.read("claim_seconds_count") == 2
    assert board.read("claim_seconds_sum") == pytest.approx(0.004)


def test_waits_are_kept_by_queue_for_the_jobs_whose_wait_is_known(board: Board) -> None:
    board.see(Claims(3, 0.003, (("default", 2.0), ("mail", 0.5))), Claims(0, 0.001))
    assert board.read("wait_seconds_count", queue="default") == 1
    assert board.read("wait_seconds_sum", queue="mail") == 0.5
    assert board.read("wait_seconds_bucket", queue="default", le="5.0") == 1
    assert board.read("wait_seconds_bucket", queue="default", le="1.0") == 0


def test_only_what_failed_for_good_is_a_dead_letter(board: Board) -> None:
    board.see(run_ended("failed"), run_ended("retry_scheduled"), run_ended("succeeded"), run_ended(None, "refused"))
    assert board.read("dead_letters_total", task="mail") == 1


def test_runs_are_counted_by_task_outcome_and_status(board: Board) -> None:
    board.see(run_ended("succeeded"), run_ended("succeeded"), run_ended(None, "refused"))
    assert board.read("runs_total", task="mail", outcome="succeeded", status="applied") == 2
    assert board.read("runs_total", task="mail", outcome="failed", status="refused") == 1
    assert board.read("refusals_total", task="mail") == 1
    assert board.read("run_seconds_sum", task="mail") == pytest.approx(0.036)


def test_a_heartbeat_tells_how_close_it_was(board: Board) -> None:
    board.see(Beats(5, 0.002, 41.0), Beats(5, 0.002, -1.0))
    assert board.read("heartbeat_seconds_count") == 2
    assert board.read("heartbeat_margin_seconds_bucket", le="0.0") == 1, "too late"
    assert board.read("heartbeat_margin_seconds_bucket", le="50.0") == 2


def test_losses_and_failures_are_counted(board: Board) -> None:
    board.see(lease_gone(), StoreFailed("claim", "away"), StoreFailed("claim", "still away"), Reaping(3))
    board.see(Problem("loop", "boom"))
    assert board.read("problems_total") == 1
    assert board.read("leases_lost_total", task="mail") == 1
    assert board.read("store_failures_total", what="claim") == 2
    assert board.read("reaped_total") == 3


def test_runners_that_ended_are_counted_by_reason(board: Board) -> None:
    board.see(runner_ended(signal=9), runner_ended(exit_code=1), runner_ended(why="recycled", signal=15))
    assert board.states("runner_restarts_total") == {"signal": 1, "exit": 1, "recycled": 1}


def test_the_wake_up_channel_has_one_status(board: Board) -> None:
    board.see(WakeUps("listening"), WakeUps("degraded"))
    assert board.states("wake_ups") == {"degraded": 1}


def test_labels_that_run_wild_end_up_in_one_series(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_CHILDREN", 3)
    board.see(*(StoreFailed(f"verb-{number}", "") for number in range(10)))
    assert board.states("store_failures_total") == {"verb-0": 1, "verb-1": 1, "verb-2": 1, "other": 7}


def test_upkeep_is_counted_by_chore(board: Board) -> None:
    board.see(UpkeepStep("retention", 500, 0.25), UpkeepStep("retention", 20, 0.25), UpkeepStep("histories", 7, 0.1))
    board.see(UpkeepFailed("histories", "no such table", None, 300.0))
    assert board.read("upkeep_total", chore="retention") == 520
    assert board.read("upkeep_seconds_total", chore="retention") == 0.5
    assert board.read("upkeep_total", chore="histories") == 7
    assert board.read("upkeep_failures_total", chore="histories") == 1
