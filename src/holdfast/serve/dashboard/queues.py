"""`/queues`: what waits where, how fast it goes, and who is let in."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from holdfast.domain.activity import Kind, Step, merged
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_integer
from holdfast.domain.views import QueueView
from holdfast.ports import Store
from holdfast.serve.api.queues import MOST_RUNNING
from holdfast.serve.dashboard import activity
from holdfast.serve.dashboard.acting import done, seen_anew
from holdfast.serve.dashboard.fleet import fleet_for
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep, WriterDep, one_of
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Row:
    queue: QueueView
    hour: Step | None
    series: tuple[float | None, ...]

    @property
    def per_minute(self) -> float | None:
        return None if self.hour is None else activity.ended(self.hour) / 60


@router.get("/queues")
async def queues(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    fleet = await fleet_for(plane, visitor)

    def read(store: Store) -> dict[str, tuple[Step, ...]]:
        return store.activity(Kind.QUEUE, activity.HOUR, visitor.identity.queues).series

    series = await plane.reads.call(read)
    known = {queue.name: queue for queue in fleet.queues}
    # One that is empty right now is not gone: it has worked in the last hour.
    known |= {name: _empty(name) for name, steps in series.items() if name not in known and any(map(_worked, steps))}
    shown = sorted(known.values(), key=lambda queue: (-queue.ready - queue.running, queue.name))[:MOST_SHOWN]
    rows = [_row(queue, series.get(queue.name, ())) for queue in shown]
    left_out = len(known) - len(rows)
    most = max((row.queue.ready for row in rows), default=0)
    return await page(request, "queues", visitor, part="queues_now.html", rows=rows, left_out=left_out, most=most)


def _empty(name: str) -> QueueView:
    return QueueView(name, 0, 0, 0, None, None, None)


def _worked(step: Step) -> bool:
    return bool(step.enqueued or step.started or activity.ended(step))


def _row(queue: QueueView, steps: tuple[Step, ...]) -> Row:
    return Row(queue, merged(steps) if steps else None, tuple(activity.ended(step) for step in steps[:-1]))


@router.post("/queues/pause")
async def pause(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    name = await one_of(request, "name")
    visitor.identity.check_queues([name])
    await plane.writes.call(lambda store: store.pause_queue(name))
    await seen_anew(plane)
    return done(f"Queue {name} is paused", "What runs, runs on; nothing more of it is claimed.")


@router.post("/queues/resume")
async def resume(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    name = await one_of(request, "name")
    visitor.identity.check_queues([name])
    await plane.writes.call(lambda store: store.resume_queue(name))
    await seen_anew(plane)
    return done(f"Queue {name} goes on")


@router.post("/queues/limit")
async def limit(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    name, given = await one_of(request, "name"), (await one_of(request, "max_running")).strip()
    visitor.identity.check_queues([name])
    if given and not (given.isdecimal() and given.isascii() and len(given) < 10):
        raise InvalidInput("at most", f"must be a number of jobs, or empty for no limit, got {given[:20]!r}")
    most = check_integer(int(given), "at most", 0, MOST_RUNNING) if given else None
    await plane.writes.call(lambda store: store.limit_queue(name, most))
    await seen_anew(plane)
    return done(f"Queue {name} has no limit" if most is None else f"Queue {name} runs at most {most:,} jobs at once")
