"""`/sources`: the outside systems that jobs touch: how full their buckets are, and what their breakers did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from fastapi import APIRouter, Request, Response

from holdfast.domain import durations
from holdfast.domain.activity import Kind, Step
from holdfast.domain.views import SourceEvent, SourceView
from holdfast.ports import Store
from holdfast.serve.api.access import check_whole_fleet
from holdfast.serve.dashboard import activity
from holdfast.serve.dashboard.acting import done, seen_anew
from holdfast.serve.dashboard.fleet import fleet_for, source_standing
from holdfast.serve.dashboard.rendering import page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep, WriterDep, one_of
from holdfast.serve.plane import PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_SHOWN = 200
MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class Row:
    source: SourceView
    standing: str
    kind: str
    hour: Step | None

    @property
    def cache_share(self) -> float | None:
        if self.hour is None or not self.hour.cache_hits + self.hour.cache_misses:
            return None
        return self.hour.cache_hits / (self.hour.cache_hits + self.hour.cache_misses)


@router.get("/sources")
async def sources(request: Request, plane: PlaneDep, visitor: VisitorDep) -> Response:
    fleet = await fleet_for(plane, visitor)
    shown = fleet.sources[:MOST_SHOWN]
    names = [source.name for source in shown]

    def read(store: Store) -> dict[str, Step]:
        return activity.by_name(store, Kind.SOURCE, activity.HOUR, names) if names else {}

    hours = await plane.reads.call(read)
    events = await plane.reads.call(lambda store: store.source_events(None, MOST_EVENTS))
    return await page(
        request,
        "sources",
        visitor,
        part="sources_now.html",
        rows=[_row(source, hours.get(source.name), fleet.now) for source in shown],
        events=_told(events.items, visitor),
        left_out=len(fleet.sources) - len(shown),
    )


# Links have the name in the query: in a path a browser takes `.` and `..` for steps, however they are encoded, and a
# proxy may do so with what stands between encoded slashes. The path is for addresses that people write by hand.
@router.get("/source")
@router.get("/sources/{name:path}")
async def source(request: Request, plane: PlaneDep, visitor: VisitorDep, name: str, after: str = "") -> Response:
    fleet = await fleet_for(plane, visitor)
    found = await plane.reads.call(lambda store: store.source(name))
    events = await plane.reads.call(lambda store: store.source_events(name, MOST_EVENTS, after or None))
    return await page(
        request,
        "source",
        visitor,
        part="source_now.html",
        row=_row(found, None, fleet.now),
        events=_told(events.items, visitor),
        next=events.after,
        ranges=activity.RANGES,
    )


def _told(events: tuple[SourceEvent, ...], visitor: Visitor) -> tuple[SourceEvent, ...]:
    """The detail names the job that moved a breaker, which may be of any queue."""
    return events if visitor.sees_all else tuple(replace(event, detail=None) for event in events)


def _row(source: SourceView, hour: Step | None, now: datetime) -> Row:
    return Row(source, *source_standing(source, now), hour)


@router.post("/sources/pause")
async def pause(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    check_whole_fleet(visitor.identity, "a source")
    name = await one_of(request, "name")
    seconds = durations.seconds((await one_of(request, "for", "5m")).strip(), "for")
    await plane.writes.call(lambda store: store.set_source(name, paused_for=seconds))
    await seen_anew(plane)
    return done(f"Source {name} is paused for {durations.spoken(seconds)}", "Jobs inside go on; no other is let in.")


@router.post("/sources/resume")
async def resume(request: Request, plane: PlaneDep, visitor: WriterDep) -> Response:
    check_whole_fleet(visitor.identity, "a source")
    name = await one_of(request, "name")
    await plane.writes.call(lambda store: store.resume_source(name))
    await seen_anew(plane)
    return done(f"Source {name} is open again", "Its pause is over and its breaker closed.")
