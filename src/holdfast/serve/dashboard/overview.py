"""`/`: how it goes, and what needs somebody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from holdfast.domain.activity import Kind, Step, merged
from holdfast.ports import Store
from holdfast.serve.dashboard import activity
from holdfast.serve.dashboard.attention import FAILING_SECONDS, attention
from holdfast.serve.dashboard.fleet import Fleet, fleet_for, source_standing, standing_of
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep
from holdfast.serve.dashboard.words import counted, duration, number, since
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    note: str
    address: str
    series: tuple[float | None, ...] = ()
    kind: str = "accent"


@router.get("/")
async def overview(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    fleet = await fleet_for(plane, visitor)

    def read(store: Store) -> tuple[tuple[Step, ...], dict[str, Step]]:
        tasks = activity.by_name(store, Kind.TASK, FAILING_SECONDS) if visitor.sees_all else {}
        return activity.of_all(store, visitor, activity.HOUR), tasks

    steps, tasks = await plane.reads.call(read)
    alive = [worker for worker in fleet.workers if fleet.alive(worker)]
    return await page(
        request,
        "overview",
        visitor,
        part="overview_now.html",
        ranges=activity.RANGES,
        attention=attention(fleet, tasks),
        tiles=_tiles(fleet, steps),
        counts=fleet.states,
        most=max((count.count for count in fleet.states), default=0),
        total=counted(sum(count.count for count in fleet.states), any(count.at_least for count in fleet.states)),
        workers=[
            {
                "id": worker.id,
                "state": worker.state,
                "standing": standing_of(fleet, worker),
                "running": worker.running,
                "places": worker.processes * worker.slots,
            }
            for worker in alive[:MOST_ROWS]
        ],
        more_workers=max(0, len(alive) - MOST_ROWS),
        sources=[
            {
                "name": source.name,
                "standing": source_standing(source, fleet.now)[0],
                "kind": source_standing(source, fleet.now)[1],
                "waiting": counted(source.waiting, source.waiting_at_least),
            }
            for source in fleet.sources[:MOST_ROWS]
        ],
    )


def _tiles(fleet: Fleet, steps: tuple[Step, ...]) -> list[Tile]:
    hour = merged(steps) if steps else None
    last = steps[-2] if len(steps) > 1 else None  # the last minute that is over
    done = None if last is None else activity.ended(last)
    waited = None if hour is None else hour.wait.percentile(0.95)
    alive = [worker for worker in fleet.workers if fleet.alive(worker)]
    places = sum(worker.processes * worker.slots for worker in alive)
    failed = 0 if hour is None else hour.failed
    ran = 0 if hour is None else activity.ended(hour)
    return [
        Tile("Done", number(done), "in the last minute", "/jobs?state=succeeded", _column(steps, activity.ended)),
        Tile(
            "Failed",
            number(failed),
            f"of {ran:,} in an hour",
            "/dead",
            _column(steps, lambda step: step.failed),
            "failed",
        ),
        Tile(
            "Waiting",
            number(fleet.ready),
            f"p95 {duration(waited)}",
            "/queues",
            _column(steps, lambda step: step.ready),
            "pending",
        ),
        Tile("Oldest waiting", since(fleet.oldest_ready_at), "since it was due", "/jobs?state=pending&state=retryable"),
        Tile(
            "Running",
            number(fleet.running),
            f"of {places:,} places",
            "/jobs?state=running",
            _column(steps, lambda step: step.running),
            "running",
        ),
        Tile("Workers", number(len(alive)), "alive", "/workers"),
    ]


def _column(steps: tuple[Step, ...], value: Callable[[Step], float | None]) -> tuple[float | None, ...]:
    """Without the minute that is not over: it would always look like a fall."""
    return tuple(value(step) for step in steps[:-1])
