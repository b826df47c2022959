"""The runners of one worker: how many of which kind, replaced when they end, recycled when they have served enough.

Nobody knows the app before a runner has imported it: the pool starts with one runner, whose manifest says whether
functions, coroutines or both are wanted, and then grows to its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.domain.manifest import Kind, TaskInfo
from holdfast.runners.process import RunnerProcess, RunnerSpec

if TYPE_CHECKING:
    from holdfast.domain.schedule import Declaration
    from holdfast.domain.sources import SourceDeclaration

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PoolSize:
    app: str
    processes: int
    slots: int
    async_slots: int
    term_grace_seconds: float
    recycle_jobs: int | None = None
    recycle_memory: int | None = None
    max_memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def runner_kind(kind: Kind) -> Kind:
    """Which runner a task goes to: a command is waited for by a function."""
    return Kind.ASYNC if kind is Kind.ASYNC else Kind.SYNC


class Pool:
    def __init__(self, size: PoolSize, started: Callable[[RunnerProcess], None]) -> None:
        self._size = size
        self._started = started
        self._runners: list[RunnerProcess] = []
        self._tasks: dict[str, TaskInfo] | None = None
        self.schedules: list[Declaration] = []
        self.sources: list[SourceDeclaration] = []
        self._failures = 0
        self._not_before = 0.0

    def __iter__(self) -> Iterator[RunnerProcess]:
        return iter(list(self._runners))

    def __len__(self) -> int:
        return len(self._runners)

    # the app

    @property
    def known(self) -> bool:
        return self._tasks is not None

    @property
    def tasks(self) -> dict[str, TaskInfo]:
        return self._tasks or {}

    def learn(
        self,
        runner: RunnerProcess,
        tasks: list[TaskInfo],
        schedules: list[Declaration],
        sources: list[SourceDeclaration],
    ) -> None:
        runner.ready = True
        self.schedules, self.sources = schedules, sources
        self._tasks = {task.name: task for task in tasks}
        runner.tasks = frozenset(self._tasks)
        self._failures = 0

    def kinds(self) -> dict[Kind, list[str]]:
        """The tasks of each kind of runner that is wanted."""
        found: dict[Kind, list[str]] = {}
        for task in self.tasks.values():
            found.setdefault(runner_kind(task.kind), []).append(task.name)
        return found

    @property
    def ready(self) -> bool:
        """The app is known, and every kind of task has a runner."""
        open_kinds = {runner.kind for runner in self._runners if runner.open}
        return bool(self._tasks) and all(spec.kind in open_kinds for spec in self.wanted())

    @property
    def slots(self) -> int:
        return sum(spec.slots * count for spec, count in self.wanted().items())

    # size

    def _spec(self, kind: Kind) -> RunnerSpec:
        slots = self._size.async_slots if kind is Kind.ASYNC else self._size.slots
        return RunnerSpec(self._size.app, kind, slots, self._size.term_grace_seconds, self._size.max_memory)

    def wanted(self) -> dict[RunnerSpec, int]:
        """How many runners of which kind there should be."""
        if self._tasks is None:
            return {self._spec(Kind.SYNC): 1}
        kinds = self.kinds()
        counts = {Kind.SYNC: self._size.processes, Kind.ASYNC: 1}
        return {self._spec(kind): counts[kind] for kind in counts if kind in kinds}

    def adjust(self, now: float) -> None:
        """Start what is missing, stop what is too many."""
        wanted = self.wanted()
        for runner in self._runners:
            if runner.spec not in wanted:
                runner.stop()
        if now < self._not_before:
            return
        for spec, count in wanted.items():
            present = sum(1 for runner in self._runners if runner.spec == spec and not _leaving(runner))
            for _ in range(count - present):
                try:
                    self._start(spec)
                except OSError:  # no process or descriptor left: asking again at every step would not help
                    self._wait(now)
                    raise

    def _start(self, spec: RunnerSpec) -> None:
        runner = RunnerProcess(spec, self._size.environment)
        self._runners.append(runner)
        self._started(runner)

    def remove(self, runner: RunnerProcess, now: float) -> None:
        """It has ended. One that never got ready is not replaced at once: its app cannot be imported, or not in the
        memory that it may use."""
        self._runners.remove(runner)
        if not runner.ready:
            self._wait(now)

    def clean_up(self) -> None:
        """After the last runner has ended: what those that were killed have left behind."""
        if any(task.kind is Kind.COMMAND for task in self.tasks.values()):
            from holdfast.runners.commands.directories import remove_left_over

            remove_left_over()

    def _wait(self, now: float) -> None:
        wait = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, 20)
        self._not_before = now + wait

    def wake_at(self, now: float) -> float:
        return self._not_before if self._not_before > now else float("inf")

    def renew(self) -> None:
        """The code has changed: every runner ends after what it runs now; new ones read the new code."""
        self._failures = 0
        self._not_before = 0.0
        for runner in self._runners:
            runner.stop()

    def may_hold(self, runner: RunnerProcess) -> float:
        """How many jobs at most, before it is replaced: what lies ahead in it is run before anybody notices."""
        most = self._size.recycle_jobs
        return float("inf") if most is None else most - runner.finished

    def worn_out(self, runner: RunnerProcess) -> bool:
        """Has it run enough jobs, or grown enough, to be replaced?"""
        size = self._size
        if size.recycle_jobs is not None and runner.finished >= size.recycle_jobs:
            return True
        return size.recycle_memory is not None and runner.memory() > size.recycle_memory


def _leaving(runner: RunnerProcess) -> bool:
    return runner.stopping or runner.killed is not None
