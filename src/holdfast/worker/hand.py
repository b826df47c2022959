"""Claimed jobs that no runner has yet, and which runner gets them.

A runner is given a job for each free slot, and quick jobs some way ahead (see `pace`). A job that lies queued behind
one that turns out slow is taken back; what nobody here can run soon is released, because others may be free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.domain.job import Claimed
from holdfast.domain.manifest import Kind
from holdfast.runners.pool import Pool, runner_kind
from holdfast.runners.process import RunnerProcess
from holdfast.worker.leases import Held
from holdfast.worker.pace import MOST_PER_RUNNER, MOST_UNTOLD, Pace
from holdfast.worker.pickup import Room

SLOW_SECONDS = 0.05
DEEP = 20  # jobs that a runner has lying ready
HAND_SECONDS = 1.0


class Table:
    """One deal: how much room each runner has left, jobs that it was given in this deal taken off."""

    def __init__(self, pool: Pool, pace: Pace, asked_back: set[int]) -> None:
        self._pool = pool
        self._pace = pace
        self._asked_back = asked_back
        self._runners = [runner for runner in pool if runner.open]
        self._room = {runner: runner.free for runner in self._runners}
        self._places: dict[str, tuple[list[RunnerProcess], int]] = {}
        self.batches: dict[RunnerProcess, list[Claimed]] = {}

    def deal(self, held: Held) -> bool:
        """False: nobody has room for it now."""
        runners, ahead = self._places.get(held.job.task) or self._find_places(held)
        if not runners:
            return False
        room = self._room
        best = runners[0] if len(runners) == 1 else max(runners, key=room.__getitem__)
        if room[best] <= 0 and not self._may_lie_ahead(held, best, ahead):
            return False
        room[best] -= 1
        held.runner = best
        self.batches.setdefault(best, []).append(held.job)
        return True

    def _may_lie_ahead(self, held: Held, runner: RunnerProcess, ahead: int) -> bool:
        room, slots = self._room[runner], runner.spec.slots
        if runner.pid in self._asked_back or not held.prefetchable:
            return False
        return room > -min(MOST_PER_RUNNER, ahead * slots) and slots - room < self._pool.may_hold(runner)

    def _find_places(self, held: Held) -> tuple[list[RunnerProcess], int]:
        """The runners that know its task, and how many of it may lie ahead for each of their slots."""
        kind, task = runner_kind(held.info.kind), held.job.task
        runners = [runner for runner in self._runners if runner.kind is kind and task in runner.tasks]
        found = self._places[task] = runners, self._pace.ahead_per_slot(self._pace.quick([task]))
        return found


class Hand:
    def __init__(self, pool: Pool, pace: Pace, leases: Callable[[], int]) -> None:
        self._pool = pool
        self._pace = pace
        self._leases = leases  # how many this worker holds, whatever they are doing
        self._jobs: deque[Held] = deque()
        self._asked_back: set[int] = set()  # pids of runners that run something slow
        self.artifacts: str | None = None  # where jobs may save files; known once the store is

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, held: Held) -> None:
        self._jobs.append(held)

    def put_back(self, held: Held) -> None:
        """It comes first: it was claimed before the others."""
        held.runner = None
        self._jobs.appendleft(held)

    def remove(self, held: Held) -> bool:
        """True if it was here."""
        if held not in self._jobs:
            return False
        self._jobs.remove(held)
        return True

    def empty(self) -> list[Held]:
        jobs, self._jobs = list(self._jobs), deque()
        return jobs

    def take_late(self, now: float) -> list[Held]:
        """What has been here for so long that others should have it."""
        late = [held for held in self._jobs if now - held.claimed_at > HAND_SECONDS]
        if late:
            self._jobs = deque(held for held in self._jobs if held not in late)
        return late

    # room

    def rooms(self) -> dict[Kind, Room]:
        return {kind: self._room(kind, tasks) for kind, tasks in self._pool.kinds().items()}

    def _room(self, kind: Kind, tasks: list[str]) -> Room:
        runners = self._open(kind)
        waiting = sum(1 for held in self._jobs if runner_kind(held.info.kind) is kind)
        free = sum(max(0, runner.free) for runner in runners) - waiting
        quick = self._pace.quick(tasks)
        ahead = sum(self._ahead(runner, quick) for runner in runners) if quick else 0
        most = sum(self._pace.ahead(quick, runner.spec.slots) for runner in runners) if quick else 0
        left = self._leases_left()
        slots = min(max(0, free), left)
        return Room(tasks, slots, quick, max(0, min(ahead + min(0, free), left - slots)), most)

    def _leases_left(self) -> int:
        """What has ended counts until the store has heard of it: if we are killed, it is reaped with the rest. A batch
        of reports has room of its own, so that runners have work while the store is told of what they did."""
        most = sum(runner.spec.slots + MOST_PER_RUNNER for runner in self._pool if runner.open)
        return max(0, most + MOST_UNTOLD - self._leases())

    def _open(self, kind: Kind) -> list[RunnerProcess]:
        return [runner for runner in self._pool if runner.kind is kind and runner.open]

    def _ahead(self, runner: RunnerProcess, quick: list[str]) -> int:
        """How many more may be queued there behind what it runs."""
        if runner.pid in self._asked_back:
            return 0
        return max(0, self._pace.ahead(quick, runner.spec.slots) - max(0, -runner.free))

    # handing over

    def deal(self) -> None:
        """Hand over what there is room for, to each runner in one message."""
        if not self._jobs:
            return
        table = Table(self._pool, self._pace, self._asked_back)
        kept: deque[Held] = deque()
        for held in self._jobs:
            if not table.deal(held):
                kept.append(held)
        for runner, jobs in table.batches.items():
            runner.run(jobs, self.artifacts)
        self._jobs = kept

    # behind something slow

    def take_back(self, started: Callable[[str], float | None], now: float) -> None:
        """Ask runners whose jobs have all run for a while for what is queued behind them."""
        for runner in self._pool:
            if runner.free >= 0 or runner.pid in self._asked_back:
                continue
            starts = [started(lease_id) for lease_id, has_started in runner.jobs.items() if has_started]
            if starts and all(start is not None and now - start > SLOW_SECONDS for start in starts):
                self._asked_back.add(runner.pid)
                runner.give_back()

    def moves_again(self, runner: RunnerProcess) -> None:
        """A job of it has ended, or it has: it may be given work ahead once more."""
        self._asked_back.discard(runner.pid)

    @property
    def nobody_waits(self) -> bool:
        """Has every runner so much to do that what it says now may be heard a moment later, together with more?"""
        return len(self._pool) > 0 and all(runner.free <= -DEEP for runner in self._pool)

    @property
    def somebody_is_idle(self) -> bool:
        return any(runner.free > 0 for runner in self._pool)

    def should_look_soon(self) -> bool:
        """Does something wait here, or behind a job that may turn out slow?"""
        behind = any(runner.free < 0 and runner.pid not in self._asked_back for runner in self._pool)
        return bool(self._jobs) or behind
