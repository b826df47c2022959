"""`/jobs`: find jobs, and do something to many of them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from holdfast.domain.views import Counted, Listed, Page
from holdfast.ports import Store
from holdfast.serve.api.access import may_use_task
from holdfast.serve.dashboard.bulk import VERBS
from holdfast.serve.dashboard.finding import Wanted, guessed, job_id_in, wanted
from holdfast.serve.dashboard.fleet import fleet_for
from holdfast.serve.dashboard.rendering import HEADERS, page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep
from holdfast.serve.plane import Plane, PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ON_A_PAGE = 50
COUNTED_TO = 10_000
MOST_OFFERED = 200  # names of a kind; any other can be typed


@router.get("/jobs")
async def jobs(
    request: Request,
    plane: PlaneDep,
    visitor: VisitorDep,
    asked: Annotated[Wanted, Depends(wanted)],
    q: str = "",
    after: str = "",
) -> Response:
    if q.strip():
        return RedirectResponse(await _searched(plane, visitor, q.strip()), 303, HEADERS)
    chosen = asked.filter(visitor.identity)

    def read(store: Store) -> tuple[Page[Listed], Counted]:
        return store.search(chosen, ON_A_PAGE, after or None), store.count_jobs(chosen, COUNTED_TO)

    found, count = await plane.reads.call(read)
    fleet = await fleet_for(plane, visitor)
    return await page(
        request,
        "jobs",
        visitor,
        part="jobs_now.html",
        asked=asked,
        found=found,
        count=count,
        after=after,
        address=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
        queues=_busiest((queue.name, queue.ready + queue.running) for queue in fleet.queues),
        sources=_busiest((source.name, source.waiting + source.in_use) for source in fleet.sources),
        tasks=(await _tasks(plane, visitor))[:MOST_OFFERED],
        verbs=VERBS,
    )


def _busiest(names: Iterable[tuple[str, int]]) -> list[str]:
    """Those with the most jobs, in the order of their names: a page must not grow with the fleet."""
    return sorted(name for name, _jobs in nsmallest(MOST_OFFERED, names, key=lambda one: (-one[1], one[0])))


async def _tasks(plane: Plane, visitor: Visitor) -> list[str]:
    found = await plane.reads.call(lambda store: store.announced_tasks())
    return [task.name for task in found if may_use_task(visitor.identity, task)]


async def _searched(plane: Plane, visitor: Visitor, text: str) -> str:
    job_id = job_id_in(text)
    if job_id is not None:
        return f"/jobs/{job_id}"
    fleet = await fleet_for(plane, visitor)
    queues, sources = [queue.name for queue in fleet.queues], [source.name for source in fleet.sources]
    return f"/jobs?{guessed(text, await _tasks(plane, visitor), queues, sources).query}"
