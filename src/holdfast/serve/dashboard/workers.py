"""`/workers`: who works, in which state each is, and what each runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.views import JobFilter, WorkerView
from holdfast.domain.worker_states import WorkerState
from holdfast.serve.dashboard.fleet import Fleet, fleet_for, standing_of
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_SHOWN = 100
MOST_RUNNING = 500
MOST_ON_A_CARD = 12
MOST_STOPPED = 20
STATES = tuple(str(state) for state in WorkerState)


@dataclass(frozen=True, slots=True)
class Card:
    worker: WorkerView
    standing: str
    places: int
    queues: tuple[str, ...] | None
    jobs: list[Job]
    more: int

    @property
    def running(self) -> int:
        """By its leases, which are of now; its own word is some seconds old."""
        return len(self.jobs) + self.more

    @property
    def memory(self) -> Any:
        """In KB, of the worker and all of its processes."""
        return self.worker.detail.get("memory_kb")


@router.get("/workers")
async def workers(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    fleet = await fleet_for(plane, visitor)
    wanted = JobFilter(states=(State.RUNNING,), queues=visitor.identity.queues)
    found = await plane.reads.call(lambda store: store.search(wanted, MOST_RUNNING))
    running: dict[str, list[Job]] = defaultdict(list)
    for item in found.items:
        running[item.job.lease_owner or ""].append(item.job)
    order = {"alive": 0, "resting": 1, "gone": 2}
    known = {worker.id for worker in fleet.workers}
    stopped = [worker for worker in fleet.workers if worker.stopped_at is not None]
    shown = [worker for worker in fleet.workers if worker.stopped_at is None]
    shown.sort(key=lambda worker: (order[standing_of(fleet, worker)], worker.id))
    return await page(
        request,
        "workers",
        visitor,
        part="workers_now.html",
        cards=[_card(fleet, worker, running[worker.id], visitor) for worker in shown[:MOST_SHOWN]],
        left_out=max(0, len(shown) - MOST_SHOWN),
        stopped=sorted(stopped, key=lambda worker: worker.beat_at, reverse=True)[:MOST_STOPPED],
        others=[job for owner, jobs in running.items() if owner not in known for job in jobs],
        states=STATES,
    )


def _card(fleet: Fleet, worker: WorkerView, jobs: list[Job], visitor: Visitor) -> Card:
    queues = worker.queues
    if queues is not None:
        queues = tuple(queue for queue in queues if visitor.identity.may_use(queue))
    more = max(0, len(jobs) - MOST_ON_A_CARD)
    return Card(
        worker, standing_of(fleet, worker), worker.processes * worker.slots, queues, jobs[:MOST_ON_A_CARD], more
    )
