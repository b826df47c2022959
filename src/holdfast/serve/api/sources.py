"""Sources: the outside systems that jobs touch, and their limits, which hold for all queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from holdfast.serve.api.access import Client, Reader, check_whole_fleet
from holdfast.serve.api.fleet_views import SourcesView, SourceView
from holdfast.serve.api.values import Form, GivenFlag, GivenInteger, GivenMoment, GivenNumber, NamePath
from holdfast.serve.body import StrictRoute
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

router = APIRouter(prefix="/sources", tags=["sources"], route_class=StrictRoute, responses=problems(404))
MOST = 1_000_000

Rate = Annotated[GivenNumber, Field(gt=0, le=1e9)]
Count = Annotated[GivenInteger, Field(ge=1, le=MOST)]


class SourceForm(Form):
    """Only what is named changes; null takes a limit away."""

    enabled: GivenFlag = True
    rate_limit_per_minute: Rate | None = None
    burst: Count = 1
    max_concurrent: Annotated[GivenInteger, Field(ge=0, le=MOST)] | None = None
    paused_until: GivenMoment | None = None
    breaker_threshold: Count = 5
    breaker_pause_seconds: Rate = 300.0


@router.get("")
async def list_sources(plane: PlaneDep, identity: Reader) -> SourcesView:
    _ = identity
    found = await plane.reads.call(lambda store: store.sources())
    return SourcesView(sources=[SourceView.model_validate(source) for source in found])


@router.put("/{name:path}", responses=problems(413))
async def set_source(plane: PlaneDep, identity: Client, name: NamePath, form: SourceForm) -> SourceView:
    """Create the source if need be, and change the limits that are named."""
    check_whole_fleet(identity, "a source")
    changes = {field: getattr(form, field) for field in form.model_fields_set}
    return SourceView.model_validate(await plane.writes.call(lambda store: store.set_source(name, **changes)))
