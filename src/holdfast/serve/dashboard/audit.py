"""`/audit`: every transition there is, the newest first, and whether all of it holds together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request, Response

from holdfast.domain.errors import InvalidInput
from holdfast.domain.feed import AuditFilter, FeedPlace
from holdfast.domain.lifecycle import Event
from holdfast.domain.names import check_id
from holdfast.serve.auth import Identity
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep
from holdfast.serve.dashboard.verifying import checks_of
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
ON_A_PAGE = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters as they stand in the address."""

    event: str = ""
    queue: str = ""
    task: str = ""
    worker: str = ""
    job: str = ""

    @property
    def query(self) -> str:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return urlencode({name: value for name, value in values.items() if value})

    def filter(self, identity: Identity) -> AuditFilter:
        if self.event and self.event not in tuple(Event):
            raise InvalidInput("event", f"must be one of {', '.join(Event)}")
        if self.queue:
            identity.check_queues([self.queue])
        return AuditFilter(
            events=(self.event,) if self.event else (),
            queues=(self.queue,) if self.queue else identity.queues,
            task=self.task or None,
            worker=self.worker or None,
            job_id=check_id(self.job, "job") if self.job else None,
        )


def asked(event: str = "", queue: str = "", task: str = "", worker: str = "", job: str = "") -> Asked:
    return Asked(event, queue, task, worker, job.strip())


@router.get("/audit")
async def audit(
    request: Request,
    plane: PlaneDep,
    visitor: VisitorDep,
    wanted: Annotated[Asked, Depends(asked)],
    before: str = "",
) -> Response:
    chosen, place = wanted.filter(visitor.identity), _place(before)
    found = await plane.reads.call(lambda store: store.audit(chosen, place, ON_A_PAGE))
    return await page(
        request,
        "audit",
        visitor,
        part="audit_now.html",
        wanted=wanted,
        found=found,
        next=found.next.text if found.next is not None else "",
        before=before,
        address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        events=tuple(Event),
        check=checks_of(request, plane).last if visitor.sees_all else None,
    )


def _place(text: str) -> FeedPlace | None:
    if not text:
        return None
    found = FeedPlace.of(text)
    if found is None:
        raise InvalidInput("before", "must be the place of a page that was shown before; leave it out for the newest")
    return found
