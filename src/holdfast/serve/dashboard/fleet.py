"""The fleet as a visitor may see it: one look for the whole server (`serve/gauges.py`), less what is not theirs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.domain.lifecycle import State
from holdfast.domain.sources import Breaker
from holdfast.domain.stuck import WORKER_ALIVE
from holdfast.domain.views import QueueView, SourceView, StateCount, Stuck, WorkerView
from holdfast.domain.worker_states import WorkerState
from holdfast.serve.dashboard.session import Visitor
from holdfast.serve.gauges import MOST_COUNTED, FleetNow
from holdfast.serve.plane import Plane

_WORKS = (WorkerState.POLLING, WorkerState.IDLE)


@dataclass(frozen=True, slots=True)
class Fleet:
    now: datetime
    queues: tuple[QueueView, ...]
    states: tuple[StateCount, ...]
    workers: tuple[WorkerView, ...]
    sources: tuple[SourceView, ...]
    stuck: tuple[Stuck, ...]

    @property
    def ready(self) -> int:
        return sum(queue.ready for queue in self.queues)

    @property
    def running(self) -> int:
        return sum(queue.running for queue in self.queues)

    @property
    def oldest_ready_at(self) -> datetime | None:
        return min((queue.oldest_ready_at for queue in self.queues if queue.oldest_ready_at), default=None)

    def alive(self, worker: WorkerView) -> bool:
        return worker.stopped_at is None and (self.now - worker.beat_at).total_seconds() <= WORKER_ALIVE


async def fleet_for(plane: Plane, visitor: Visitor) -> Fleet:
    found = await plane.gauges.now()
    queues = visitor.identity.queues
    if queues is None:
        return _seen(found, visitor, found.states)
    states = await plane.reads.call(lambda store: store.state_counts(queues, MOST_COUNTED))
    return _seen(found, visitor, tuple(states))


def _seen(found: FleetNow, visitor: Visitor, states: tuple[StateCount, ...]) -> Fleet:
    identity = visitor.identity
    return Fleet(
        now=found.taken_at,
        queues=tuple(queue for queue in found.queues if identity.may_use(queue.name)),
        states=tuple(sorted(states, key=lambda count: list(State).index(count.state))),
        workers=tuple(worker for worker in found.workers if serves(worker, visitor)),
        sources=found.sources,
        stuck=tuple(stuck for stuck in found.stuck if identity.may_use(stuck.job.queue)),
    )


def serves(worker: WorkerView, visitor: Visitor) -> bool:
    return worker.queues is None or any(visitor.identity.may_use(queue) for queue in worker.queues)


def standing_of(fleet: Fleet, worker: WorkerView) -> str:
    """For its dot: alive, resting (it takes no jobs now), stopped or gone."""
    if worker.stopped_at is not None:
        return "stopped"
    if not fleet.alive(worker):
        return "gone"
    return "alive" if worker.state in _WORKS else "resting"


def source_standing(source: SourceView, now: datetime) -> tuple[str, str]:
    """How a source is, in a word, and whether that is good."""
    if not source.enabled:
        return "switched off", "bad"
    if source.paused_until is not None and source.paused_until > now:
        return {"breaker": "breaker open", "retry_after": "asked to wait"}.get(source.paused_by or "", "paused"), "bad"
    if source.breaker is not Breaker.CLOSED:
        return "probing", "warn"
    return "healthy", "good"
