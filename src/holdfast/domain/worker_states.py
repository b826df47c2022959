"""The two state machines of a worker, as data: the worker's own, and that of each job it runs.

Everything that shows a state (the worker's row, its log, its metrics, the diagram in `docs/worker-states.md`) reads
these tables, and `Machine` refuses a move that is not in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar


class WorkerState(StrEnum):
    STARTING = "starting"
    CONNECTING = "connecting"
    RECOVERING = "recovering"
    POLLING = "polling"
    BACKING_OFF = "backing_off"
    IDLE = "idle"
    ERROR_WAIT = "error_wait"
    DRAINING = "draining"
    STOPPED = "stopped"


class RunState(StrEnum):
    CLAIMING = "claiming"
    PROCESSING = "processing"
    REPORTING_SUCCESS = "reporting_success"
    REPORTING_FAILURE = "reporting_failure"


ERROR_WAIT_SECONDS = 5.0

_W = WorkerState
_FORWARD: dict[WorkerState, dict[WorkerState, str]] = {
    _W.STARTING: {_W.CONNECTING: "the runners are up"},
    _W.CONNECTING: {_W.RECOVERING: "connected"},
    _W.RECOVERING: {_W.POLLING: "duties done, tasks announced"},
    _W.POLLING: {_W.BACKING_OFF: "nothing found"},
    _W.BACKING_OFF: {_W.IDLE: "the wait is chosen"},
    _W.IDLE: {_W.CONNECTING: "the wait is over, or somebody rang: a cheap check"},
    _W.ERROR_WAIT: {_W.CONNECTING: "after 5 s"},
    _W.DRAINING: {_W.STOPPED: "nothing of its own runs, everything is reported"},
    _W.STOPPED: {},
}
_AT_WORK = tuple(state for state in WorkerState if state not in (_W.DRAINING, _W.STOPPED))


def _with_exits(state: WorkerState, moves: Mapping[WorkerState, str]) -> dict[WorkerState, str]:
    exits = {}
    if state in _AT_WORK:
        if state is not _W.ERROR_WAIT:
            exits[_W.ERROR_WAIT] = "failed" if state is _W.CONNECTING else "an unhandled exception"
        exits[_W.DRAINING] = "a stop signal"
    return {**moves, **exits}


WORKER_MOVES: Mapping[WorkerState, Mapping[WorkerState, str]] = {
    state: _with_exits(state, moves) for state, moves in _FORWARD.items()
}

RUN_MOVES: Mapping[RunState, Mapping[RunState, str]] = {
    RunState.CLAIMING: {RunState.PROCESSING: "a runner has started it"},
    RunState.PROCESSING: {
        RunState.REPORTING_SUCCESS: "it succeeded",
        RunState.REPORTING_FAILURE: "it failed, crashed, or is given back",
    },
    RunState.REPORTING_SUCCESS: {},
    RunState.REPORTING_FAILURE: {},
}

AnyState = TypeVar("AnyState", bound=StrEnum)


def check_run_move(before: RunState | None, target: RunState) -> None:
    """Refuse a move of a run that is not in the table; a run that is over has no state."""
    if before is None or target not in RUN_MOVES[before]:
        raise IllegalMove(f"{before} → {target} is not in the table")


class IllegalMove(AssertionError):
    """A bug: the code made a move that is not in the table."""


class Machine(Generic[AnyState]):
    """A state that only moves along its table, and tells a listener about every move."""

    def __init__(
        self,
        start: AnyState,
        moves: Mapping[AnyState, Mapping[AnyState, str]],
        moved: Callable[[AnyState, AnyState], None] = lambda _before, _after: None,
    ) -> None:
        self.state: AnyState = start
        self._moves = moves
        self._moved = moved

    def to(self, target: AnyState) -> None:
        before = self.state
        if target not in self._moves[before]:
            raise IllegalMove(f"{before} → {target} is not in the table")
        self.state = target
        self._moved(before, target)
