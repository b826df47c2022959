"""`/dead`: failed jobs by what they failed of, and back with them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_GROUPS = 100
LOOKED_AT = 10_000


@router.get("/dead")
async def dead(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    found = await plane.reads.call(lambda store: store.dead_groups(visitor.identity.queues, LOOKED_AT))
    return await page(
        request,
        "dead",
        visitor,
        part="dead_now.html",
        found=found,
        groups=found.groups[:MOST_GROUPS],
        left_out=max(0, len(found.groups) - MOST_GROUPS),
    )
