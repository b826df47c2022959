"""Schedules: see, pause, resume, run now. To a token that is limited to queues only those are there whose jobs it could
have made itself."""

from __future__ import annotations

from fastapi import APIRouter, Response

from holdfast.domain.errors import NotFound
from holdfast.domain.job import DEFAULT_QUEUE
from holdfast.domain.schedule import Schedule
from holdfast.ports import Store
from holdfast.serve.api.access import Client, Reader, check_stand_in, may_use_task, without_names
from holdfast.serve.api.fleet_views import SchedulesView, ScheduleView, UnreadableView
from holdfast.serve.api.job_views import EnqueuedView
from holdfast.serve.api.values import NamePath, answer
from holdfast.serve.auth import Identity
from holdfast.serve.body import StrictRoute
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=StrictRoute)


@router.get("")
async def list_schedules(plane: PlaneDep, identity: Reader) -> SchedulesView:
    def read(store: Store) -> SchedulesView:
        found = [schedule for schedule in store.schedules() if may_see_schedule(store, identity, schedule)]
        unreadable = [] if identity.queues is not None else store.unreadable_schedules()
        return SchedulesView(
            schedules=[ScheduleView.model_validate(schedule) for schedule in found],
            unreadable=[UnreadableView.model_validate(failure) for failure in unreadable],
        )

    return await plane.reads.call(read)


@router.post("/{name:path}/pause", responses=problems(404))
async def pause_schedule(plane: PlaneDep, identity: Client, name: NamePath) -> ScheduleView:
    def pause(store: Store) -> ScheduleView:
        check_schedule(store, identity, name)
        return ScheduleView.model_validate(store.pause_schedule(name))

    return await plane.writes.call(pause)


@router.post("/{name:path}/resume", responses=problems(404))
async def resume_schedule(plane: PlaneDep, identity: Client, name: NamePath) -> ScheduleView:
    def resume(store: Store) -> ScheduleView:
        check_schedule(store, identity, name)
        return ScheduleView.model_validate(store.resume_schedule(name))

    return await plane.writes.call(resume)


@router.post(
    "/{name:path}/run",
    status_code=201,
    response_model=EnqueuedView,
    responses={200: {"model": EnqueuedView, "description": "A unique job was there already."}, **problems(404, 409)},
)
async def run_schedule(plane: PlaneDep, identity: Client, name: NamePath) -> Response:
    """Make its job now, besides its plan."""
    lease = plane.settings.timing.lease

    def run(store: Store) -> Response:
        check_schedule(store, identity, name)
        with without_names(identity):
            enqueued = check_stand_in(store, identity, store.run_schedule_now(name, lease_seconds=lease))
        return answer(EnqueuedView.model_validate(enqueued), 201 if enqueued.created else 200)

    return await plane.writes.call(run)


def check_schedule(store: Store, identity: Identity, name: str) -> None:
    if not may_see_schedule(store, identity, store.schedule(name)):
        raise NotFound(f"there is no schedule {name!r}")


def may_see_schedule(store: Store, identity: Identity, schedule: Schedule) -> bool:
    if identity.queues is None:
        return True
    queue = schedule.job.get("queue")
    if queue is None and schedule.declared is None:
        return may_use_task(identity, store.announced(schedule.task))
    return identity.may_use(queue or DEFAULT_QUEUE)
