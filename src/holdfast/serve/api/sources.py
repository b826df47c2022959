"""Sources: the outside systems that jobs touch, how they are, and their limits, which hold for all queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.domain.caching import MAX_CACHE_KEY
from holdfast.domain.durations import LONGEST_SECONDS
from holdfast.domain.names import MAX_NAME
from holdfast.domain.sources import HIGHEST_COUNT, HIGHEST_RATE, MOST_CODES
from holdfast.serve.api.access import Client, Reader, check_whole_fleet
from holdfast.serve.api.fleet_views import ClearedView, SourceEventsView, SourceEventView, SourcesView, SourceView
from holdfast.serve.api.parameters import EncodedNameRoute
from holdfast.serve.api.values import Form, GivenFlag, GivenInteger, GivenMoment, GivenName, GivenNumber, NamePath
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

router = APIRouter(prefix="/sources", tags=["sources"], route_class=EncodedNameRoute, responses=problems(404))
MOST_EVENTS = 1_000

Rate = Annotated[GivenNumber, Field(gt=0, le=HIGHEST_RATE)]
Count = Annotated[GivenInteger, Field(ge=1, le=HIGHEST_COUNT)]
Seconds = Annotated[GivenNumber, Field(gt=0, le=LONGEST_SECONDS)]
Codes = Annotated[list[GivenName], Field(max_length=MOST_CODES)]
RateText = Annotated[GivenName, Field(description="5/s, 100/m, 1000/h or 1/d", max_length=MAX_NAME)]


class SourceForm(Form):
    """Only what is named changes; null takes a limit away. `rate` is another way to say `rate_limit_per_minute`."""

    enabled: GivenFlag = True
    rate: RateText | None = None
    rate_limit_per_minute: Rate | None = None
    burst: Count = 1
    max_concurrent: Annotated[GivenInteger, Field(ge=0, le=HIGHEST_COUNT)] | None = None
    paused_until: GivenMoment | None = None
    paused_for: Seconds = 60.0
    breaker_threshold: Count = 5
    breaker_pause_seconds: Seconds = 300.0
    breaker_only: Codes | None = None
    breaker_ignores: Codes | None = None
    breaker_counts_permanent: GivenFlag = True


class PauseForm(Form):
    seconds: Seconds


@router.get("")
async def list_sources(plane: PlaneDep, identity: Reader) -> SourcesView:
    _ = identity
    found = await plane.reads.call(lambda store: store.sources())
    return SourcesView(sources=[SourceView.model_validate(source) for source in found])


# Before the source itself: a name may contain slashes.
@router.get("/{name:path}/events")
async def list_source_events(
    plane: PlaneDep,
    identity: Reader,
    name: NamePath,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 50,
    after: Annotated[str | None, Query(description="the `after` of the page before")] = None,
) -> SourceEventsView:
    """Moves of its breaker and changes of its limits, the newest first."""
    page = await plane.reads.call(lambda store: store.source_events(name, limit, after))
    events = [SourceEventView.model_validate(event) for event in page.items]
    if identity.queues is not None:  # the detail names the job that moved a breaker, which may be of any queue
        events = [event.model_copy(update={"detail": None}) for event in events]
    return SourceEventsView(events=events, after=page.after)


@router.get("/{name:path}")
async def get_source(plane: PlaneDep, identity: Reader, name: NamePath) -> SourceView:
    _ = identity
    return SourceView.model_validate(await plane.reads.call(lambda store: store.source(name)))


@router.put("/{name:path}", responses=problems(413))
async def set_source(plane: PlaneDep, identity: Client, name: NamePath, form: SourceForm) -> SourceView:
    """Create the source if need be, and change the limits that are named."""
    check_whole_fleet(identity, "a source")
    changes = {field: getattr(form, field) for field in form.model_fields_set}
    return SourceView.model_validate(await plane.writes.call(lambda store: store.set_source(name, **changes)))


@router.post("/{name:path}/pause", responses=problems(413))
async def pause_source(plane: PlaneDep, identity: Client, name: NamePath, form: PauseForm) -> SourceView:
    """No job of it starts for so long; those that run go on."""
    check_whole_fleet(identity, "a source")
    return SourceView.model_validate(
        await plane.writes.call(lambda store: store.set_source(name, paused_for=form.seconds))
    )


@router.post("/{name:path}/resume")
async def resume_source(plane: PlaneDep, identity: Client, name: NamePath) -> SourceView:
    """End its pause, whoever paused it, and close its breaker."""
    check_whole_fleet(identity, "a source")
    return SourceView.model_validate(await plane.writes.call(lambda store: store.resume_source(name)))


@router.delete("/{name:path}/cache")
async def clear_cache(
    plane: PlaneDep,
    identity: Client,
    name: NamePath,
    key: Annotated[str | None, Query(min_length=1, max_length=MAX_CACHE_KEY, description="only this one")] = None,
) -> ClearedView:
    """Forget what the source answered, all of it or under one key. A worker with a cache of its own keeps that."""
    check_whole_fleet(identity, "a source")
    return ClearedView(cleared=await plane.writes.call(lambda store: store.clear_cache(name, key)))
