"""`/schedules`: what runs by itself, when it ran last and when it will next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from holdfast.domain.schedule import Schedule, ScheduleFailure, Tick
from holdfast.ports import Store
from holdfast.serve.api.access import check_stand_in, without_names
from holdfast.serve.api.schedules import check_schedule, may_see_schedule
from holdfast.serve.auth import Identity
from holdfast.serve.dashboard.acting import done
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep, WriterDep, one_of
from holdfast.serve.plane import Plane, PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_SHOWN = 200
LAST_TICKS = 12


@dataclass(frozen=True, slots=True)
class Row:
    schedule: Schedule
    ticks: tuple[Tick, ...]  # the newest first


@router.get("/schedules")
async def schedules(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    def read(store: Store) -> tuple[list[Row], int, list[ScheduleFailure]]:
        found = [schedule for schedule in store.schedules() if may_see_schedule(store, visitor.identity, schedule)]
        rows = [Row(schedule, tuple(store.ticks(schedule.name, LAST_TICKS))) for schedule in found[:MOST_SHOWN]]
        return rows, max(0, len(found) - MOST_SHOWN), store.unreadable_schedules() if visitor.sees_all else []

    rows, left_out, unreadable = await plane.reads.call(read)
    return await page(
        request,
        "schedules",
        visitor,
        part="schedules_now.html",
        rows=rows,
        left_out=left_out,
        unreadable=unreadable,
    )


@router.post("/schedules/pause")
async def pause(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    return await _set(request, plane, visitor, "is paused", lambda store, name: store.pause_schedule(name))


@router.post("/schedules/resume")
async def resume(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    return await _set(request, plane, visitor, "goes on", lambda store, name: store.resume_schedule(name))


async def _set(
    request: Request, plane: Plane, visitor: Visitor, said: str, change: Callable[[Store, str], Schedule]
) -> Response:
    name = await one_of(request, "name")

    def act(store: Store) -> None:
        check_schedule(store, visitor.identity, name)
        change(store, name)

    await plane.writes.call(act)
    return done(f"Schedule {name} {said}")


@router.post("/schedules/run")
async def run(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    name, lease = await one_of(request, "name"), plane.settings.timing.lease
    job_id = await plane.writes.call(lambda store: _run(store, visitor.identity, name, lease))
    return done(f"Schedule {name} has run now", f"as job {job_id}")


def _run(store: Store, identity: Identity, name: str, lease: float) -> str:
    check_schedule(store, identity, name)
    with without_names(identity):
        return check_stand_in(store, identity, store.run_schedule_now(name, lease_seconds=lease)).id
