"""Begin a check of the audit log, see how far it is, stop it. It is for those who see all queues."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from holdfast.serve.api.access import check_whole_fleet
from holdfast.serve.dashboard.rendering import fragment
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep, check_origin
from holdfast.serve.dashboard.verifying import Check, checks_of
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.post("/verify")
async def begin(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    """It changes nothing: whoever may look may also ask whether it holds."""
    await check_origin(request, visitor.csrf)
    check_whole_fleet(visitor.identity, "the audit log")
    return await _shown(visitor, checks_of(request, plane).begin(visitor.identity))


@router.get("/verify")
async def show(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    check_whole_fleet(visitor.identity, "the audit log")
    return await _shown(visitor, checks_of(request, plane).last)


@router.post("/verify/stop")
async def stop(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    await check_origin(request, visitor.csrf)
    check_whole_fleet(visitor.identity, "the audit log")
    last = checks_of(request, plane).last
    if last is not None and (visitor.may_write or last.identity.id == visitor.identity.id):
        last.stop.set()
    return await _shown(visitor, last)


async def _shown(visitor: Visitor, check: Check | None) -> Response:
    return await fragment("verify.html", visitor, check=check)
