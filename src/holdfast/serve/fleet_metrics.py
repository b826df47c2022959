"""The fleet as metric families: what one look at the store says.

Every control plane says the same of one store: aggregate with `max`, never with `sum`. Names that users choose (queues,
sources) are bounded: beyond `MOST_NAMES` the smallest are added up under `other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.domain.sources import Breaker
from holdfast.domain.stuck import WORKER_ALIVE, Code
from holdfast.domain.views import QueueView, SourceView, WorkerView
from holdfast.domain.worker_states import WorkerState
from holdfast.observe.series import OTHER
from holdfast.serve.gauges import FleetNow
from holdfast.stores.inspection.postgres import TableHealth

MOST_NAMES = 500
SILENT = "silent"  # a worker that has not said goodbye and is not heard of any more

Samples = Mapping[Any, float]  # by a tuple of label values


def gauge(name: str, text: str, samples: Samples | float, *labels: str) -> GaugeMetricFamily:
    if not isinstance(samples, Mapping):
        return GaugeMetricFamily(f"holdfast_{name}", text, value=samples)
    family = GaugeMetricFamily(f"holdfast_{name}", text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def families(fleet: FleetNow) -> Iterator[Metric]:
    yield gauge("fleet_age_seconds", "How old the figures about the fleet are.", fleet.age_seconds)
    yield gauge("fleet_look_seconds", "How long it took to gather them.", fleet.took_seconds)
    yield from _queues(fleet)
    yield from _states(fleet)
    yield from _workers(fleet)
    yield from _sources(fleet)
    yield from _duties(fleet)
    yield from _database(fleet)


def _queues(fleet: FleetNow) -> Iterator[Metric]:
    depth: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    paused: dict[tuple[str, ...], float] = {}
    for name, queue in _bounded(fleet.queues, _busyness):
        for state, count in (("ready", queue.ready), ("scheduled", queue.scheduled), ("running", queue.running)):
            depth[name, state] += count
        since = queue.oldest_ready_at
        waited = 0.0 if since is None else max(0.0, (fleet.taken_at - since).total_seconds())
        oldest[name,] = max(waited, oldest.get((name,), 0.0))
        paused[name,] = min(float(queue.paused_at is not None), paused.get((name,), 1.0))
    yield gauge("queue_jobs", "Jobs of a queue: due, due later, running.", depth, "queue", "state")
    yield gauge(
        "queue_oldest_seconds", "Time that the oldest due job has waited, by the store's clock.", oldest, "queue"
    )
    yield gauge("queue_paused", "1 for a queue that is paused.", paused, "queue")


def _states(fleet: FleetNow) -> Iterator[Metric]:
    counts = {(str(state.state),): float(state.count) for state in fleet.states}
    bounded = {(str(state.state),): float(state.at_least) for state in fleet.states}
    yield gauge(
        "jobs",
        "Jobs in a state. Of a queue at most 100,000 are counted: where holdfast_jobs_at_least is 1 there are more.",
        counts,
        "state",
    )
    yield gauge("jobs_at_least", "1 where holdfast_jobs is a lower bound: nobody counted them all.", bounded, "state")
    reasons: Counter[tuple[str, ...]] = Counter({(str(code),): 0 for code in Code})
    for group in fleet.stuck:
        reasons[group.code,] += group.count
    yield gauge("stuck_jobs", "Jobs that ought to move and do not, by reason; at least so many.", reasons, "reason")


def _workers(fleet: FleetNow) -> Iterator[Metric]:
    states: Counter[tuple[str, ...]] = Counter({(str(state),): 0 for state in WorkerState} | {(SILENT,): 0})
    slots = running = 0
    for worker in fleet.workers:
        state = _state(worker, fleet)
        states[state,] += 1
        if state not in (SILENT, WorkerState.STOPPED):
            slots += worker.slots
            running += worker.running
    yield gauge(
        "workers", "Workers by state; silent: no goodbye, and no word for 90 s. Forgotten after a day.", states, "state"
    )
    yield gauge("worker_slots", "Jobs that the workers which are alive can run at once.", float(slots))
    yield gauge("worker_slots_in_use", "Jobs that they run.", float(running))


def _state(worker: WorkerView, fleet: FleetNow) -> str:
    if worker.stopped_at is not None:
        return str(WorkerState.STOPPED)
    if (fleet.taken_at - worker.beat_at).total_seconds() > WORKER_ALIVE:
        return SILENT
    known = {str(state) for state in WorkerState}
    return worker.state if worker.state in known else OTHER  # others speak the contract too, in words of their own


def _sources(fleet: FleetNow) -> Iterator[Metric]:
    breakers: Counter[tuple[str, ...]] = Counter()
    waiting: Counter[tuple[str, ...]] = Counter()
    in_use: Counter[tuple[str, ...]] = Counter()
    for name, source in _bounded(fleet.sources, _demand):
        for state in Breaker:
            breakers[name, str(state)] += source.breaker is state
        waiting[name,] += source.waiting
        in_use[name,] += source.in_use
    yield gauge("source_breaker", "1 for the state of a source's breaker.", breakers, "source", "state")
    yield gauge("source_waiting", "Due jobs that wait for a source; counted up to 10,000.", waiting, "source")
    yield gauge("source_in_use", "Attempts inside a source.", in_use, "source")


def _duties(fleet: FleetNow) -> Iterator[Metric]:
    ages = {(name,): age for name, age in sorted(fleet.duties.items())[:MOST_NAMES]}
    yield gauge("duty_age_seconds", "Time since a duty of the fleet was last done, by whomever.", ages, "duty")


def _database(fleet: FleetNow) -> Iterator[Metric]:
    """Postgres alone has these."""
    live = {(table.name,): float(table.live) for table in fleet.tables}
    dead = {(table.name,): float(table.dead) for table in fleet.tables}
    ratio = {(table.name,): _ratio(table) for table in fleet.tables}
    yield gauge("table_live_rows", "Rows of a table, as Postgres estimates them.", live, "table")
    yield gauge("table_dead_rows", "Dead rows that no vacuum has removed yet, likewise.", dead, "table")
    yield gauge("table_dead_ratio", "Dead rows as a share of all rows of a table.", ratio, "table")
    oldest = fleet.oldest_snapshot_seconds
    yield gauge(
        "oldest_snapshot_seconds",
        "How long the oldest transaction that keeps vacuum from removing dead rows has been open.",
        {} if oldest is None else {(): oldest},
    )


def _ratio(table: TableHealth) -> float:
    rows = table.live + table.dead
    return table.dead / rows if rows else 0.0


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Thing = TypeVar("Thing", bound=_Named)


def _bounded(things: Iterable[Thing], weight: Callable[[Thing], int]) -> list[tuple[str, Thing]]:
    """Under which name each counts: those where most happens keep theirs."""
    ordered = sorted(things, key=lambda thing: (-weight(thing), thing.name))
    return [(thing.name if place < MOST_NAMES else OTHER, thing) for place, thing in enumerate(ordered)]


def _busyness(queue: QueueView) -> int:
    return queue.ready + queue.running + queue.scheduled


def _demand(source: SourceView) -> int:
    return source.waiting + source.in_use
