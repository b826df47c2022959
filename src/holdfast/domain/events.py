"""What happens in a worker, as values. Code emits them; logs and metrics subscribe (see `observe/`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from holdfast.domain.hot import hot_value
from holdfast.domain.worker_states import RunState, WorkerState


@dataclass(frozen=True, slots=True)
class WorkerMoved:
    before: WorkerState
    after: WorkerState


@hot_value(frozen=True, slots=True)
class RunMoved:
    """A job run changed its state; `before` is None when it was just claimed, `after` is None when it is over."""

    job_id: str
    attempt: int
    task: str
    queue: str
    before: RunState | None
    after: RunState | None


@dataclass(frozen=True, slots=True)
class Claims:
    """One claim: how many jobs, how long the store took, and for each job whose wait is known its queue and the seconds
    it had been due."""

    count: int
    seconds: float
    waits: tuple[tuple[str, float], ...] = ()


@hot_value(frozen=True, slots=True)
class RunEnded:
    """The store has answered a report. `outcome` is what was reported, `event` what the store recorded (None when it
    refused), `status` as in `domain/answers.Status`."""

    job_id: str
    attempt: int
    task: str
    queue: str
    outcome: str
    status: str
    event: str | None
    duration_ms: int | None
    error: str | None


@hot_value(frozen=True, slots=True)
class RunSucceeded(RunEnded):
    """The usual end: reported as a success, and recorded as one. Only made if somebody wants it."""


@dataclass(frozen=True, slots=True)
class Beats:
    """One heartbeat: how many leases, how long it took, and the least time that was left on any of them."""

    count: int
    seconds: float
    margin: float


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """A lease that cannot be confirmed any more (`refused` false) or that the store says is not ours (true)."""

    job_id: str
    attempt: int
    task: str
    refused: bool
    killed: bool


@dataclass(frozen=True, slots=True)
class RunnerStarted:
    pid: int
    kind: str
    slots: int


@dataclass(frozen=True, slots=True)
class RunnerEnded:
    """`why` is None when it ended by itself."""

    pid: int
    kind: str
    exit_code: int | None
    signal: int | None
    why: str | None
    jobs: int


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """A runner holds a job and has not started it for `seconds`; `killed` tells whether the runner is killed for it."""

    pid: int
    job_id: str
    attempt: int
    task: str
    seconds: float
    killed: bool


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """`what` names the verb: claim, heartbeat, settle, connect, duties, logs."""

    what: str
    message: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Reaping:
    count: int


@dataclass(frozen=True, slots=True)
class ClockSetBack:
    """The store's clock was set back, and the reaper corrected times in the future."""

    behind_seconds: float | None
    leases: int
    jobs: int
    sources: int


@dataclass(frozen=True, slots=True)
class JobReaped:
    """One of them; `event` is what the store recorded, `lease_lost` or `failed`."""

    job_id: str
    attempt: int
    event: str | None


@dataclass(frozen=True, slots=True)
class Ticked:
    """A schedule fired, or left something out (`outcome` as in `domain/schedule.Outcome`); `late` is by how many
    seconds."""

    schedule: str
    outcome: str
    job_id: str | None
    late: float


@dataclass(frozen=True, slots=True)
class ScheduleFailed:
    """A schedule is due and cannot fire, or cannot follow what code declares; told once for each reason."""

    schedule: str
    message: str


@dataclass(frozen=True, slots=True)
class UpkeepStep:
    """One batch of a chore: how many things it dealt with, and how long it took."""

    chore: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    """A chore that had something to do is through with it, or was stopped (`finished` false)."""

    chore: str
    count: int
    seconds: float
    finished: bool


@dataclass(frozen=True, slots=True)
class UpkeepFailed:
    """A chore could not go on; it is tried again after `retry_seconds`."""

    chore: str
    message: str
    stack: str | None
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class WakeUps:
    """The state of the wake-up channel: listening, degraded, off."""

    status: str


@dataclass(frozen=True, slots=True)
class DutyRefused:
    """What the worker's token does not allow it to do for all of them; its jobs go on without."""

    duty: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something unexpected that the process survived, with its traceback; and the attempt that it is about, if any."""

    where: str
    message: str
    stack: str | None = None
    job_id: str | None = None
    attempt: int | None = None


Event = (
    WorkerMoved
    | RunMoved
    | Claims
    | RunEnded
    | RunSucceeded
    | Beats
    | LeaseGone
    | RunnerStarted
    | RunnerEnded
    | StartOverdue
    | StoreFailed
    | StoreBack
    | Reaping
    | ClockSetBack
    | JobReaped
    | Ticked
    | ScheduleFailed
    | UpkeepStep
    | UpkeepDone
    | UpkeepFailed
    | WakeUps
    | DutyRefused
    | Problem
)
Subscriber = Callable[[Event], None]


class Events:
    """Hands every event to every subscriber that wants its kind, in the thread that emits it."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers: list[tuple[Subscriber, Collection[type] | None, Collection[type]]] = []
        self._listeners: dict[type, list[Subscriber]] = {}
        for subscriber in subscribers:
            self.subscribe(subscriber)

    def subscribe(
        self, subscriber: Subscriber, *, only: Collection[type] | None = None, never: Collection[type] = ()
    ) -> None:
        self._subscribers.append((subscriber, only, never))
        self._listeners.clear()

    def wants(self, kind: type) -> bool:
        """Asked before an event is made of what happens several times in every job."""
        return bool(self._listeners_to(kind))

    def emit(self, event: Event) -> None:
        for subscriber in self._listeners_to(type(event)):
            subscriber(event)

    def _listeners_to(self, kind: type) -> list[Subscriber]:
        found = self._listeners.get(kind)
        if found is None:
            found = [
                who for who, only, never in self._subscribers if kind not in never and (only is None or kind in only)
            ]
            self._listeners[kind] = found
        return found
