"""Chores that one worker at a time does for all of them, in the background and never in the way.

A chore is asked for when its time has come, each worker at a slightly different one. Who wins the turn of the period
does its steps, one after the other, and after each leaves the store alone for several times as long as it took: all
upkeep of a worker together takes at most a fifth of the time. Several chores that are at work alternate.

Everything happens in a thread and on a connection of its own, so no heartbeat, claim or report waits for it. A worker
that drains, or whose store is away, stops at the next step: what was done is done, and whoever wins the next turn goes
on from there. A chore that fails is told of and tried again, less and less often; the others go on.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.domain.errors import is_away
from holdfast.domain.events import Events, UpkeepDone, UpkeepFailed, UpkeepStep
from holdfast.maintenance.chores import Chore
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER

if TYPE_CHECKING:
    from holdfast.periodic.retrying import Retrying
    from holdfast.ports import Store

# A step is followed by a pause of so many times its own duration.
PAUSE_TIMES = 4.0
SHORTEST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 30.0
RENEW_EVERY_SECONDS = 5.0
# The first look comes after a part of the period, so that a worker which has just started is at its jobs first.
FIRST_LOOK = (0.1, 0.2)
JITTER = (0.9, 1.1)
LONGEST_RETRY_SECONDS = 3600.0


@dataclass(eq=False)
class _Task:
    """A chore of this worker: when it is due, and how far its steps are when they have begun."""

    chore: Chore
    due_at: float
    failures: int = 0
    steps: Iterator[int] | None = None
    renewed_at: float = 0.0
    began_at: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class _Opening:
    """The first thing is to open the store, and to see what there is to do."""


@dataclass(frozen=True, slots=True)
class _Visit:
    task: _Task
    renew: bool


@dataclass(frozen=True, slots=True)
class _Visited:
    """What a visit to the store brought: the count of a step; None where there was none to do, or not for us."""

    count: int | None
    seconds: float
    renewed: bool = False
    ours: bool = True  # the turn
    error: Exception | None = None
    stack: str | None = None


class Upkeep:
    """`chores` is asked once, when the store has been opened: what there is to do may depend on it."""

    def __init__(
        self,
        store: Callable[[], Store],
        chores: Callable[[Store], list[Chore]],
        worker: str,
        events: Events,
        ring: Callable[[], None],
        may_work: Callable[[], bool],
        retrying: Retrying,
    ) -> None:
        self._store = store
        self._chores = chores
        self._worker = worker
        self._events = events
        self._may_work = may_work
        self._retrying = retrying
        self._known = False
        self._waiting: list[_Task] = []
        self._working: deque[_Task] = deque()
        self._visiting: _Task | None = None
        self._resume_at = 0.0
        self._desk: Desk[_Opening | _Visit, _Visited | list[Chore]] = Desk("upkeep", self._serve, ring)

    def step(self, now: float) -> None:
        self._take(now)
        if self._desk.busy or now < self._retrying.not_before:
            return
        if not self._may_work():
            self._stop(now)
        elif not self._known:
            self._desk.ask(_Opening())
        elif (task := self._next(now)) is not None:
            self._visiting = task
            every = min(RENEW_EVERY_SECONDS, task.chore.period_seconds / 3)
            self._desk.ask(_Visit(task, renew=now - task.renewed_at >= every))

    def wake_at(self) -> float:
        if self._desk.busy or not self._may_work():
            return NEVER
        due_at = min((task.due_at for task in self._waiting), default=NEVER) if self._known else 0.0
        return max(self._retrying.not_before, min(due_at, self._resume_at if self._working else NEVER))

    def close(self) -> None:
        self._desk.close()

    def _next(self, now: float) -> _Task | None:
        """A chore whose turn may be taken; else, after the pause, the next of those at work."""
        due = min(self._waiting, key=lambda task: task.due_at, default=None)
        if due is not None and now >= due.due_at:
            self._waiting.remove(due)
            return due
        return self._working.popleft() if self._working and now >= self._resume_at else None

    # in the thread of the desk

    def _serve(self, visit: _Opening | _Visit) -> _Visited | list[Chore]:
        if isinstance(visit, _Opening):
            return self._chores(self._store())
        began = time.monotonic()
        try:
            count, renewed, ours = self._visit(visit.task, visit.renew)
        except Exception as error:
            if is_away(error):
                raise
            return _Visited(None, time.monotonic() - began, error=error, stack=traceback.format_exc())
        return _Visited(count, time.monotonic() - began, renewed, ours)

    def _visit(self, task: _Task, renew: bool) -> tuple[int | None, bool, bool]:
        """Take the turn or keep it, and do one step."""
        chore, store = task.chore, self._store()
        if task.steps is None:
            if chore.by_turns and not store.take_turn(chore.name, self._worker, chore.period_seconds):
                return None, False, False
            task.steps = chore.steps()
            renew = True
        elif renew and chore.by_turns and not store.keep_turn(chore.name, self._worker):
            return None, False, False
        return next(task.steps, None), renew, True

    # in the thread of the loop

    def _take(self, now: float) -> None:
        answer = self._desk.take()
        match answer:
            case None:
                return
            case Refusal(error):
                self._retrying.failed(now, error)
                self._put_down(self._visited(), now, finished=False)
                self._stop(now)
            case list():
                self._known = True
                self._waiting = [_Task(chore, now + _spread(chore.period_seconds, FIRST_LOOK)) for chore in answer]
            case _Visited():
                self._retrying.worked(now)
                pause = max(SHORTEST_PAUSE_SECONDS, min(LONGEST_PAUSE_SECONDS, answer.seconds * PAUSE_TIMES))
                self._resume_at = max(self._resume_at, now + pause)
                self._heard(self._visited(), answer, now)

    def _visited(self) -> _Task | None:
        task, self._visiting = self._visiting, None
        return task

    def _heard(self, task: _Task | None, answer: _Visited, now: float) -> None:
        if task is None:
            return
        if answer.error is not None:
            self._failed(task, answer.error, answer.stack, now)
        elif answer.count is None:
            task.failures = 0
            self._put_down(task, now, finished=answer.ours)
        else:
            self._went_on(task, answer.count, answer, now)

    def _went_on(self, task: _Task, count: int, answer: _Visited, now: float) -> None:
        if answer.renewed:
            task.renewed_at = now
            task.began_at = task.began_at or now - answer.seconds
        task.count += count
        self._working.append(task)
        if count:
            self._events.emit(UpkeepStep(task.chore.name, count, answer.seconds))

    def _put_down(self, task: _Task | None, now: float, *, finished: bool) -> None:
        """Until the next period: nothing is left, it is somebody else's turn, or there is no time for it now."""
        if task is None:
            return
        if task.count:
            self._events.emit(UpkeepDone(task.chore.name, task.count, now - task.began_at, finished))
        self._waiting.append(_Task(task.chore, now + _spread(task.chore.period_seconds, JITTER), task.failures))

    def _failed(self, task: _Task, error: Exception, stack: str | None, now: float) -> None:
        wait = _spread(min(task.chore.period_seconds * 2**task.failures, LONGEST_RETRY_SECONDS), JITTER)
        self._events.emit(UpkeepFailed(task.chore.name, str(error) or type(error).__name__, stack, wait))
        self._waiting.append(_Task(task.chore, now + wait, min(task.failures + 1, 20)))

    def _stop(self, now: float) -> None:
        while self._working:
            self._put_down(self._working.popleft(), now, finished=False)


def _spread(seconds: float, between: tuple[float, float]) -> float:
    return seconds * random.uniform(*between)
