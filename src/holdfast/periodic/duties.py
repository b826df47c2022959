"""What any worker or control plane does for all of them, now and then: reap, fire schedules, announce its tasks,
schedules and sources, and keep its row for people to see. A control plane has no tasks and no row.

Reaping comes first, and each duty stands for itself: one that fails is told of once and tried again less and less
often, and the others are done. Only a store that does not answer ends the round: there is nobody to ask the rest of.

Schedules are announced when the worker starts and when its code has changed; the announcements of every minute only say
that they are still declared. So two releases that run side by side do not take turns. Of sources the store remembers
what code has declared last: they are announced when the worker starts, and when its code has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from holdfast.domain.answers import Reaped, Status
from holdfast.domain.errors import NotAllowed, StoreUnavailable, is_away
from holdfast.domain.events import (
    ClockSetBack,
    DutyRefused,
    Events,
    JobReaped,
    Problem,
    Reaping,
    ScheduleFailed,
    Ticked,
)
from holdfast.domain.job import DEFAULT_LEASE_SECONDS, Claimed
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Released, Report
from holdfast.domain.schedule import Declaration, Fired, ScheduleFailure
from holdfast.domain.sources import SourceDeclaration
from holdfast.domain.views import WorkerRow
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.part import NEVER

if TYPE_CHECKING:
    from holdfast.domain.timing import Timing
    from holdfast.periodic.retrying import Retrying
    from holdfast.ports import Store

ANNOUNCE_EVERY_SECONDS = 60.0
ROW_EVERY_SECONDS = 20.0
# Who has schedules looks so often for what others have changed; who has none, for the first one.
LOOK_EVERY_SECONDS = 5.0
LOOK_SELDOM_SECONDS = 15.0
SHORTEST_LOOK_SECONDS = 0.02
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

Answer = TypeVar("Answer")


class Duty(StrEnum):
    GIVE_BACK = "give lost claims back"
    REAP = "reap"
    ANNOUNCE = "announce tasks"
    FORGET = "forget workers"
    KEEP = "keep schedules"
    DECLARE = "announce schedules"
    GOVERN = "announce sources"
    SHOW = "show this worker"
    FIRE = "fire schedules"


@dataclass(frozen=True, slots=True)
class _Round:
    """What is due together."""

    reap: bool
    tasks: tuple[TaskInfo, ...]
    row: WorkerRow | None
    schedules: tuple[Declaration, ...] | None = None  # declared anew
    kept: tuple[Declaration, ...] = ()  # declared before, and still
    fire: bool = False
    forget: bool = False
    sources: tuple[SourceDeclaration, ...] = ()  # declared anew


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    refused: bool = False  # with this token it will not do, and that is how somebody wants it


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of it."""

    reaped: Reaped | None = None
    fired: Fired | None = None
    failures: tuple[ScheduleFailure, ...] = field(default=())
    tried: Mapping[Duty, _Failure | None] = field(default_factory=dict)  # what was wrong with it


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A duty that failed last time."""

    message: str
    times: int
    again_at: float


class _Trying:
    """Does one duty after the other and remembers what was wrong with which."""

    def __init__(self) -> None:
        self.outcomes: dict[Duty, _Failure | None] = {}

    def __call__(self, duty: Duty, do: Callable[[], Answer]) -> Answer | None:
        self.outcomes[duty] = None
        try:
            return do()
        except NotAllowed as error:
            self.outcomes[duty] = _Failure(str(error), refused=True)
        except Exception as error:  # whatever is wrong with this one must not keep the others from being done
            if is_away(error):
                raise
            self.outcomes[duty] = _Failure(f"{type(error).__name__}: {error}")
        return None


class Duties:
    def __init__(
        self,
        store: Callable[[], Store],
        worker: str,
        timing: Callable[[], Timing],
        events: Events,
        ring: Callable[[], None],
        tasks: Callable[[], list[TaskInfo]],
        row: Callable[[], WorkerRow | None],
        retrying: Retrying,
        declared: Callable[[], list[Declaration]] = list,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        sources: Callable[[], list[SourceDeclaration]] = list,
    ) -> None:
        self._store = store
        self._worker = worker
        self._timing = timing
        self._events = events
        self._tasks = tasks
        self._row = row
        self._retrying = retrying
        self._declared = declared
        self._lease_seconds = lease_seconds
        self._sources = sources
        self._reap_at = self._announce_at = self._row_at = self._fire_at = 0.0
        self._announced: list[TaskInfo] = []
        self._announced_schedules: list[Declaration] | None = None
        self._announced_sources: list[SourceDeclaration] = []
        self._announcing = self._governing = False
        self._troubles: dict[Duty, _Trouble] = {}
        self._failures: dict[str, str] = {}
        self._desk: Desk[_Round, _Done] = Desk("duties", self._serve, ring)
        self._lost: dict[str, Claimed] = {}  # the desk's own: given back once the store has taken them
        self.error: Exception | None = None

    @property
    def pending(self) -> bool:
        return self._desk.busy

    def due(self, now: float) -> bool:
        changed = self._tasks() != self._announced or self._is_to_declare(now) or self._is_to_govern(now)
        return changed or now >= self._next_at

    def _is_to_govern(self, now: float) -> bool:
        trouble = self._troubles.get(Duty.GOVERN)
        return self._sources() != self._announced_sources and (trouble is None or now >= trouble.again_at)

    def _is_to_declare(self, now: float) -> bool:
        trouble = self._troubles.get(Duty.DECLARE)
        return self._declared() != self._announced_schedules and (trouble is None or now >= trouble.again_at)

    def step(self, now: float) -> None:
        """Take the answer of the last round; begin another if one is due."""
        answer = self._desk.take()
        if isinstance(answer, Refusal):
            # What is wrong with a duty alone is told, and must not keep the worker from its jobs.
            self.error = answer.error if isinstance(answer.error, StoreUnavailable) else None
            self._reap_at = self._announce_at = self._row_at = self._fire_at = self._retrying.failed(now, answer.error)
            if self._announcing:  # and not otherwise: a newer release may have announced its own since
                self._announced_schedules = None
            if self._governing:
                self._announced_sources = []
        elif answer is not None:
            self.error = None
            self._retrying.worked(now)
            self._done(answer, now)
        if not self._desk.busy and now >= self._retrying.not_before and self.due(now):
            self._desk.ask(self._round(now))

    def _done(self, done: _Done, now: float) -> None:
        if done.reaped is not None:
            self._emit_reaped(done.reaped)
        self._tell_failures(done)
        for duty, failure in done.tried.items():
            self._note(duty, failure, now)
        if done.fired is None:
            return
        for tick in done.fired.ticks:
            late = (tick.fired_at - tick.planned_at).total_seconds()
            self._events.emit(Ticked(tick.schedule, str(tick.outcome), tick.job_id, late))
        seconds = done.fired.seconds_to_next
        wait = LOOK_SELDOM_SECONDS if seconds is None else min(seconds, LOOK_EVERY_SECONDS)
        self._fire_at = now + max(wait, SHORTEST_LOOK_SECONDS)

    def _emit_reaped(self, reaped: Reaped) -> None:
        clock = reaped.clock
        if clock is not None and (clock.leases or clock.jobs or clock.sources):
            self._events.emit(ClockSetBack(clock.seconds, clock.leases, clock.jobs, clock.sources))
        if reaped.settled:
            self._events.emit(Reaping(len(reaped.settled)))
        for job in reaped.settled:
            self._events.emit(JobReaped(job.job_id, job.attempt, job.event))

    def _note(self, duty: Duty, failure: _Failure | None, now: float) -> None:
        """Told once for each reason, then tried again after a wait that doubles."""
        before = self._troubles.pop(duty, None)
        if failure is None:
            return
        times = 0 if before is None else before.times + 1
        again_at = now + min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(times, 10))
        self._troubles[duty] = _Trouble(failure.message, times, again_at)
        if before is None or before.message != failure.message:
            self._events.emit(_told(duty, failure))
        match duty:
            case Duty.REAP:
                self._reap_at = again_at
            case Duty.ANNOUNCE:
                self._announce_at = again_at
            case Duty.DECLARE:
                self._announced_schedules = None
            case Duty.GOVERN:
                self._announced_sources = []
            case Duty.SHOW:
                self._row_at = again_at
            case Duty.FIRE:
                self._fire_at = again_at
            case Duty.GIVE_BACK | Duty.KEEP | Duty.FORGET:
                pass  # come with every round, or with the next announcement

    def _tell_failures(self, done: _Done) -> None:
        """Once: a schedule that cannot fire is found again at every look."""
        fired = () if done.fired is None else done.fired.failures
        found = {failure.schedule: failure.message for failure in (*done.failures, *fired)}
        for schedule, message in found.items():
            if self._failures.get(schedule) != message:
                self._events.emit(ScheduleFailed(schedule, message))
        self._failures = found if done.fired is not None else self._failures | found

    def _round(self, now: float) -> _Round:
        reap = now >= self._reap_at
        if reap:
            self._reap_at = now + self._timing().reap_period
        tasks: tuple[TaskInfo, ...] = ()
        announcing = now >= self._announce_at or self._tasks() != self._announced
        if announcing:
            self._announced = self._tasks()
            tasks = tuple(self._announced)
            self._announce_at = now + ANNOUNCE_EVERY_SECONDS
        schedules: tuple[Declaration, ...] | None = None
        kept = tuple(self._announced_schedules or ()) if tasks else ()
        self._announcing = self._is_to_declare(now)
        if self._announcing:
            self._announced_schedules = self._declared()
            schedules, kept = tuple(self._announced_schedules), ()
        self._governing = self._is_to_govern(now)
        if self._governing:
            self._announced_sources = self._sources()
        row = None
        if now >= self._row_at:
            row = self._row()
            self._row_at = now + ROW_EVERY_SECONDS
        fire = self._announcing or now >= self._fire_at
        sources = tuple(self._announced_sources) if self._governing else ()
        return _Round(reap, tasks, row, schedules, kept, fire, forget=announcing, sources=sources)

    def _serve(self, round_: _Round) -> _Done:
        store = self._store()
        row, schedules = round_.row, round_.schedules
        trying = _Trying()
        trying(Duty.GIVE_BACK, lambda: self._give_back(store))
        reaped = trying(Duty.REAP, lambda: self._reap(store)) if round_.reap else None
        if round_.tasks:
            trying(Duty.ANNOUNCE, lambda: store.announce(round_.tasks))
        if round_.forget:
            trying(Duty.FORGET, store.forget_workers)
        if round_.kept:
            trying(Duty.KEEP, lambda: store.keep_schedules(round_.kept))
        failures = None if schedules is None else trying(Duty.DECLARE, lambda: store.announce_schedules(schedules))
        if round_.sources:
            trying(Duty.GOVERN, lambda: store.announce_sources(round_.sources))
        if row is not None:
            trying(Duty.SHOW, lambda: store.keep_worker(row))
        fired = trying(Duty.FIRE, lambda: self._fire(store)) if round_.fire else None
        return _Done(reaped, fired, failures or (), trying.outcomes)

    def _fire(self, store: Store) -> Fired:
        return store.fire_schedules(self._worker, lease_seconds=self._lease_seconds)

    def _reap(self, store: Store) -> Reaped:
        timing = self._timing()
        return store.reap(
            self._worker, period=timing.reap_period, lease_seconds=timing.lease, heartbeat_seconds=timing.heartbeat
        )

    def _give_back(self, store: Store) -> None:
        """Jobs of a claim whose answer was lost: nobody runs them, and nobody should wait for their leases to end."""
        self._lost |= {job.lease_id: job for job in store.recover(self._worker)}
        if self._lost:
            released = Released("the answer to the claim was lost")
            jobs = list(self._lost.values())
            reports = [Report(job.job_id, job.attempt, job.lease_token, released, self._worker) for job in jobs]
            answers = zip(jobs, store.settle(reports), strict=True)
            self._lost = {job.lease_id: job for job, answer in answers if answer.status is Status.BUSY}

    def wake_at(self) -> float:
        if self._desk.busy:
            return NEVER
        return max(self._retrying.not_before, self._next_at)

    @property
    def _next_at(self) -> float:
        declaring = self._troubles.get(Duty.DECLARE)
        declare_at = NEVER if declaring is None else declaring.again_at
        governing = self._troubles.get(Duty.GOVERN)
        govern_at = NEVER if governing is None else governing.again_at
        return min(self._reap_at, self._announce_at, self._row_at, self._fire_at, declare_at, govern_at)

    def run_soon(self) -> None:
        """Something went wrong with the store: look after what may have been lost."""
        self._reap_at = 0.0

    def show_soon(self) -> None:
        """The state changed in a way that people should see now."""
        self._row_at = 0.0

    def say_goodbye(self, seconds: float) -> None:
        """The last row. Nothing depends on it, so it gets one short try; who never wrote a first one is silent."""
        if not self._announced:
            return
        self._desk.wait(seconds)
        if not self._desk.busy:
            self._desk.ask(_Round(False, (), self._row()))
            self._desk.wait(seconds)

    def close(self) -> None:
        self._desk.close()


def _told(duty: Duty, failure: _Failure) -> DutyRefused | Problem:
    if failure.refused:
        return DutyRefused(str(duty), failure.message)
    return Problem(f"the duty to {duty}", failure.message)
