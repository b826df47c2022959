"""The leases a worker holds, and what its own clock says about them.

A lease is confirmed from the moment its last successful claim or heartbeat was *sent*: how long the answer took only
ever makes us more careful. Once it may have run out, nothing of ours may run under it.

This module decides nothing about processes and knows no store: it is told times and answers what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.domain.answers import Beat
from holdfast.domain.artifacts import Artifact
from holdfast.domain.job import Claimed
from holdfast.domain.looks import Looks
from holdfast.domain.manifest import OnLostLease, TaskInfo
from holdfast.domain.outcome import Outcome
from holdfast.domain.timing import Timing, kill_margin
from holdfast.domain.worker_states import RunState

if TYPE_CHECKING:
    from holdfast.runners.process import RunnerProcess
    from holdfast.tasks.tracing import AttemptTrace

REPORTING_AGAIN_SECONDS = 0.5
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Held:
    """A job under one of our leases, from its claim to the store's answer to its report."""

    id: str
    job: Claimed
    info: TaskInfo
    claimed_at: float
    confirmed_at: float
    beat_every: float
    beat_at: float
    worker: str | None = None
    state: RunState | None = RunState.CLAIMING  # None: it is over
    runner: RunnerProcess | None = None
    trace: AttemptTrace | None = None
    started_at: float | None = None
    # What the task asked the engine to know.
    progress: Any = None
    progress_waits: bool = False
    completing: bool = False
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    cache: Looks = field(default_factory=dict)
    # What is to be done about it, and when.
    limit_at: float = _NEVER
    kill_at: float = _NEVER
    ending: Outcome | None = None  # what is reported if it does not end well by itself
    cancel_seen: bool = False
    lease_warned: bool = False
    lease_over: bool = False  # acted upon: whatever runs under it has been killed
    lost: bool = False  # the store said so
    reported: bool = False
    # On its way to the store right now. Never both: a heartbeat that comes in behind the report is refused, and a
    # refusal is kept as evidence of a zombie.
    beating: bool = False
    reporting: bool = False

    @property
    def deadline(self) -> float:
        return self.confirmed_at + self.job.lease_seconds

    @property
    def lease_warning_at(self) -> float:
        return self.deadline - 2 * kill_margin(self.job.lease_seconds)

    @property
    def lease_kill_at(self) -> float:
        return self.deadline - kill_margin(self.job.lease_seconds)

    @property
    def watched(self) -> bool:
        """Does the end of its lease have to stop something?"""
        return not (self.reported or self.lost or self.lease_over) and self.info.on_lost_lease is OnLostLease.KILL

    def next_check(self) -> float:
        lease = self.lease_kill_at if self.lease_warned else self.lease_warning_at
        return min(self.limit_at, self.kill_at, lease if self.watched else _NEVER)

    @property
    def prefetchable(self) -> bool:
        """May lie queued in a runner behind another job. Not with a crash on record, not on its last chance: such a
        job should meet its fate alone. Not with a source: what holds a place there should be using it."""
        job = self.job
        last_chance = job.failures + job.crashes + 1 >= job.max_attempts or job.max_crashes <= 1
        return job.crashes == 0 and job.source is None and not last_chance

    @property
    def has_news(self) -> bool:
        """Progress that is worth a heartbeat of its own; what has ended tells it with its report."""
        return self.progress_waits and not self.reported

    def beat(self) -> Beat:
        progress = self.progress if self.progress_waits else None
        return Beat(self.job.job_id, self.job.attempt, self.job.lease_token, self.worker, progress)


class LeaseBook:
    def __init__(self, timing: Timing, worker: str | None = None) -> None:
        self._timing = timing
        self._worker = worker
        self._held: dict[str, Held] = {}
        self._newest: dict[str, Held] = {}  # by attempt id: the execution under the newest lease
        self._next_check = _NEVER
        self._next_beat = _NEVER
        self.progress_waits = False  # some job has said how far it is, and the store has not heard it

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def get(self, lease_id: str) -> Held | None:
        return self._held.get(lease_id)

    def newest(self, attempt_id: str) -> Held | None:
        """The execution of an attempt under its newest lease, if this worker holds one."""
        return self._newest.get(attempt_id)

    def add(self, job: Claimed, info: TaskInfo, sent_at: float) -> Held:
        every = self._timing.beat_every(job.lease_seconds)
        held = Held(job.lease_id, job, info, sent_at, sent_at, every, sent_at + every, self._worker)
        self._held[held.id] = self._newest[job.attempt_id] = held
        self._next_beat = min(self._next_beat, held.beat_at)
        if held.watched:  # and nothing else is known of it yet that could come earlier
            self._next_check = min(self._next_check, held.lease_warning_at)
        return held

    def drop(self, held: Held) -> None:
        self._held.pop(held.id, None)
        if self._newest.get(held.job.attempt_id) is held:
            del self._newest[held.job.attempt_id]

    def changed(self, held: Held) -> None:
        """One of its times was brought forward."""
        self._next_check = min(self._next_check, held.next_check())

    def confirm(self, held: Held, sent_at: float) -> None:
        """A heartbeat that was sent then has succeeded."""
        held.confirmed_at = max(held.confirmed_at, sent_at)
        held.lease_warned = False

    # heartbeats

    @property
    def next_beat(self) -> float:
        return self._next_beat if self._held else _NEVER

    def due_beats(self, now: float, *, with_progress: bool = False) -> list[Held]:
        """Everything whose turn comes within half a period joins in: one statement for all. With progress, also what
        has some to tell; it is a heartbeat like any other."""
        if now < self._next_beat and not (with_progress and self.progress_waits):
            return []
        for held in self._held.values():
            if held.reported:
                # Its report is on the way and ends the lease; only where that takes long does it need another beat.
                held.beat_at = max(held.beat_at, held.confirmed_at + held.job.lease_seconds / 2 + held.beat_every / 2)
            if held.reporting:  # not beside it; in a moment it is known whether there is still a lease
                held.beat_at = max(held.beat_at, now + min(REPORTING_AGAIN_SECONDS, held.beat_every))
        due = [
            held
            for held in self._held.values()
            if not (held.lost or held.reporting)
            and (held.beat_at - held.beat_every / 2 <= now or (with_progress and held.has_news))
        ]
        self.progress_waits = self.progress_waits and not with_progress
        for held in due:
            held.beat_at = now + held.beat_every
        self._plan_beats()
        return due

    def said_progress(self, held: Held, value: Any) -> None:
        held.progress, held.progress_waits = value, True
        self.progress_waits = True

    def beat_again(self, held: Held, at: float) -> None:
        held.beat_at = min(held.beat_at, at)
        self._next_beat = min(self._next_beat, held.beat_at)

    def _plan_beats(self) -> None:
        self._next_beat = min((held.beat_at for held in self._held.values() if not held.lost), default=_NEVER)

    # limits

    @property
    def next_check(self) -> float:
        return self._next_check

    def due_checks(self, now: float) -> list[Held]:
        if now < self._next_check:
            return []
        return [held for held in self._held.values() if held.next_check() <= now]

    def plan_checks(self) -> None:
        self._next_check = min((held.next_check() for held in self._held.values()), default=_NEVER)
