"""What the worker's loop waits for: a word of a runner, the bell, a time; and where the store is an embedded file, on
which nobody can wait, a change of it."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable

from holdfast.runners.process import RunnerProcess
from holdfast.worker.bell import Bell

LOOK_EVERY_SECONDS = 0.05

Ready = list[tuple[selectors.SelectorKey, int]]


class Waiting:
    """`has_changed` is a question that costs microseconds, if there is one to ask."""

    def __init__(self, bell: Bell, clock: Callable[[], float]) -> None:
        self.has_changed: Callable[[], bool] | None = None
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._selector.register(bell, selectors.EVENT_READ)

    def add(self, runner: RunnerProcess) -> None:
        self._selector.register(runner, selectors.EVENT_READ)

    def forget(self, runner: RunnerProcess) -> None:
        self._selector.unregister(runner)

    def watch_unsent(self, runners: Iterable[RunnerProcess]) -> None:
        for runner in runners:
            if runner.line_closed:
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if runner.has_unsent else 0)
            if self._selector.get_key(runner).events != events:
                self._selector.modify(runner, events)

    def wait(self, seconds: float) -> Ready:
        return self._selector.select(seconds)

    def wait_or_change(self, seconds: float) -> tuple[Ready, bool]:
        """The same, but also until the file has changed."""
        if self.has_changed is None:
            return self.wait(seconds), False
        until = self._clock() + seconds
        while True:
            left = until - self._clock()
            ready = self.wait(max(0.0, min(left, LOOK_EVERY_SECONDS)))
            has_changed = not ready and self.has_changed()
            if ready or has_changed or left <= LOOK_EVERY_SECONDS:
                return ready, has_changed

    def close(self) -> None:
        self._selector.close()
