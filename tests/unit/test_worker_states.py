"""The two tables of the worker are the designed ones, written out here a second time by hand."""

import itertools
from typing import Any

import pytest

from holdfast.domain.worker_states import (
    ERROR_WAIT_SECONDS,
    RUN_MOVES,
    WORKER_MOVES,
    IllegalMove,
    Machine,
    RunState,
    WorkerState,
)

WORKER = """
    starting     connecting
    connecting   recovering
    recovering   polling
    polling      backing_off
    backing_off  idle
    idle         connecting
    error_wait   connecting
    draining     stopped

    starting     error_wait
    connecting   error_wait
    recovering   error_wait
    polling      error_wait
    backing_off  error_wait
    idle         error_wait

    starting     draining
    connecting   draining
    recovering   draining
    polling      draining
    backing_off  draining
    idle         draining
    error_wait   draining
"""

RUN = """
    claiming    processing
    processing  reporting_success
    processing  reporting_failure
"""


def arrows(text: str) -> set[tuple[str, ...]]:
    return {tuple(row.split()) for row in text.split("\n") if row.strip()}


@pytest.mark.parametrize(("moves", "designed"), [(WORKER_MOVES, WORKER), (RUN_MOVES, RUN)], ids=["worker", "run"])
def test_the_table_is_the_designed_one(moves: Any, designed: str) -> None:
    assert {(str(source), str(target)) for source, targets in moves.items() for target in targets} == arrows(designed)


@pytest.mark.parametrize(("moves", "states"), [(WORKER_MOVES, WorkerState), (RUN_MOVES, RunState)])
def test_every_state_is_in_its_table(moves: Any, states: Any) -> None:
    assert set(moves) == set(states)


def test_an_error_is_waited_out_for_five_seconds() -> None:
    assert ERROR_WAIT_SECONDS == 5


@pytest.mark.parametrize(("source", "target"), list(itertools.product(WorkerState, repeat=2)), ids=str)
def test_a_worker_makes_the_moves_of_the_table_and_no_other(source: WorkerState, target: WorkerState) -> None:
    _check(Machine(source, WORKER_MOVES), target, allowed=(source, target) in arrows(WORKER))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(RunState, repeat=2)), ids=str)
def test_a_run_makes_the_moves_of_the_table_and_no_other(source: RunState, target: RunState) -> None:
    _check(Machine(source, RUN_MOVES), target, allowed=(source, target) in arrows(RUN))


def _check(machine: Machine[Any], target: Any, allowed: bool) -> None:
    before = machine.state
    if allowed:
        machine.to(target)
        assert machine.state == target
    else:
        with pytest.raises(IllegalMove, match=f"{before} → {target}"):
            machine.to(target)
        assert machine.state == before, "a refused move changes nothing"


def test_every_move_is_told_to_the_listener_and_a_refused_one_is_not() -> None:
    told: list[tuple[WorkerState, WorkerState]] = []
    machine = Machine(WorkerState.STARTING, WORKER_MOVES, lambda before, after: told.append((before, after)))
    machine.to(WorkerState.CONNECTING)
    with pytest.raises(IllegalMove):
        machine.to(WorkerState.IDLE)
    machine.to(WorkerState.DRAINING)
    assert told == [
        (WorkerState.STARTING, WorkerState.CONNECTING),
        (WorkerState.CONNECTING, WorkerState.DRAINING),
    ]
