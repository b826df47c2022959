"""The fleet at a glance: workers, tasks, what is stuck, how many jobs there are, and what was refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from holdfast.domain import views
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.tokens import Scope
from holdfast.ports import Store
from holdfast.serve.api.access import Reader, check_job, lineage_seen, may_use_task
from holdfast.serve.api.fleet_views import (
    RefusalsView,
    RefusalView,
    StateCountView,
    StatsView,
    StuckListView,
    StuckView,
    TasksView,
    TaskView,
    WorkersView,
    WorkerView,
)
from holdfast.serve.api.parameters import AskingRoute
from holdfast.serve.api.values import answer
from holdfast.serve.auth import Identity
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

router = APIRouter(tags=["fleet"], route_class=AskingRoute)
MOST_STUCK = 200


@router.get("/workers")
async def list_workers(plane: PlaneDep, identity: Reader) -> WorkersView:
    """Those that have told of themselves. For a token that is limited to queues, those that serve one of them."""
    found = await plane.reads.call(lambda store: store.workers())
    return WorkersView(workers=[_shown(worker, identity) for worker in found if _serves(worker, identity)])


def _serves(worker: views.WorkerView, identity: Identity) -> bool:
    return worker.queues is None or identity.queues is None or not set(worker.queues).isdisjoint(identity.queues)


def _shown(worker: views.WorkerView, identity: Identity) -> WorkerView:
    view = WorkerView.model_validate(worker)
    if view.queues is None:
        return view
    return view.model_copy(update={"queues": [queue for queue in view.queues if identity.may_use(queue)]})


@router.get("/tasks")
async def list_tasks(plane: PlaneDep, identity: Reader) -> TasksView:
    """What workers have announced: the defaults that jobs get whose caller does not have the code. For a token that is
    limited to queues, the tasks whose jobs go there by themselves. Webhooks are shown to clients of all queues only."""
    found = await plane.reads.call(lambda store: store.announced_tasks())
    return TasksView(tasks=[_task(task, identity) for task in found if may_use_task(identity, task)])


def _task(task: TaskInfo, identity: Identity) -> TaskView:
    """A webhook's URL is often a secret."""
    view = TaskView.model_validate(task)
    if identity.queues is None and identity.may((Scope.CLIENT,)):
        return view
    shown = {name: value for name, value in view.defaults.items() if name != "webhook"}
    return view.model_copy(update={"defaults": shown})


@router.get("/stuck", response_model=StuckListView)
async def list_stuck(
    plane: PlaneDep, identity: Reader, limit: Annotated[int, Query(ge=1, le=MOST_STUCK)] = 50
) -> Response:
    """What ought to move and does not, and why."""

    def read(store: Store) -> Response:
        found = store.stuck(limit, identity.queues)
        jobs = lineage_seen(store, identity, [stuck.job for stuck in found])
        shown = [StuckView.of(replace(stuck, job=job)) for stuck, job in zip(found, jobs, strict=True)]
        return answer(StuckListView(stuck=shown))

    return await plane.reads.call(read)


@router.get("/stats")
async def get_stats(plane: PlaneDep, identity: Reader) -> StatsView:
    """How many jobs are in each state. Very many are not all counted."""
    found = await plane.reads.call(lambda store: store.state_counts(identity.queues))
    return StatsView(states=[StateCountView.model_validate(count) for count in found])


@router.get("/refusals", responses=problems(404))
async def list_refusals(
    plane: PlaneDep, identity: Reader, job: Annotated[str | None, Query(json_schema_extra={"format": "uuid"})] = None
) -> RefusalsView:
    """Late or forged heartbeats and reports, the latest first, at most a thousand."""

    def read(store: Store) -> list[views.Refusal]:
        if job is not None:
            return store.refusals(check_job(store, identity, job))
        return store.refusals() if identity.queues is None else store.refusals_in(identity.queues)

    found = await plane.reads.call(read)
    return RefusalsView(refusals=[RefusalView.model_validate(refusal) for refusal in found])
