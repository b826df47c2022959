"""The numbers behind the charts, for uPlot: one list of times, and lists of values of the same length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from holdfast.domain.activity import Kind, Step
from holdfast.ports import Store
from holdfast.serve.dashboard import activity
from holdfast.serve.dashboard.rendering import HEADERS
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import Refused

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Value = Callable[[Step, float], float | None]  # of a step that has so many minutes
Seconds = Annotated[int, Query()]


def _rate(name: str) -> Value:
    return lambda step, minutes: round(getattr(step, name) / minutes, 2)


def _series(label: str, colour: str, value: Value, **more: bool) -> tuple[dict[str, Any], Value]:
    return {"label": label, "colour": colour, **more}, value


CHARTS: dict[str, tuple[str, tuple[tuple[dict[str, Any], Value], ...]]] = {
    "throughput": (
        "",
        (
            _series("succeeded", "succeeded", _rate("succeeded"), filled=True),
            _series("failed", "failed", _rate("failed")),
            _series("retried", "retryable", _rate("retried")),
            _series("enqueued", "pending", _rate("enqueued"), dashed=True),
        ),
    ),
    "latency": (
        "s",
        (
            _series("wait p50", "pending", lambda step, _minutes: step.wait.percentile(0.5)),
            _series("wait p95", "retryable", lambda step, _minutes: step.wait.percentile(0.95)),
            _series("run p50", "accent", lambda step, _minutes: step.run.percentile(0.5)),
            _series("run p95", "running", lambda step, _minutes: step.run.percentile(0.95)),
        ),
    ),
    "depth": (
        "",
        (
            _series("ready", "retryable", lambda step, _minutes: step.ready, filled=True),
            _series("running", "running", lambda step, _minutes: step.running),
            _series("scheduled", "pending", lambda step, _minutes: step.scheduled, dashed=True),
        ),
    ),
    "cache": (
        "",
        (
            _series("cache hits", "succeeded", _rate("cache_hits"), filled=True),
            _series("cache misses", "retryable", _rate("cache_misses")),
        ),
    ),
}


@router.get("/charts/all")
async def of_all(plane: PlaneDep, visitor: VisitorDep, seconds: Seconds = 3_600) -> JSONResponse:
    step = _step(seconds)
    return _drawn(await plane.reads.call(lambda store: activity.of_all(store, visitor, seconds, step)), step)


@router.get("/charts/queue")
async def of_queue(plane: PlaneDep, visitor: VisitorDep, name: str, seconds: Seconds = 3_600) -> JSONResponse:
    visitor.identity.check_queues([name])
    return await _named(plane, Kind.QUEUE, name, seconds)


@router.get("/charts/source")
async def of_source(plane: PlaneDep, visitor: VisitorDep, name: str, seconds: Seconds = 3_600) -> JSONResponse:
    _ = visitor
    return await _named(plane, Kind.SOURCE, name, seconds)


async def _named(plane: PlaneDep, kind: Kind, name: str, seconds: int) -> JSONResponse:
    step = _step(seconds)

    def read(store: Store) -> tuple[Step, ...]:
        return store.activity(kind, seconds, [name], step).series.get(name, ())

    return _drawn(await plane.reads.call(read), step)


def _step(seconds: int) -> float:
    step = activity.STEPS.get(seconds)
    if step is None:
        raise Refused(422, "That does not work", f"seconds must be one of {', '.join(map(str, activity.STEPS))}")
    return step


def _drawn(steps: tuple[Step, ...], step_seconds: float) -> JSONResponse:
    minutes = step_seconds / 60
    charts = {
        name: {
            "unit": unit,
            "series": [{**about, "values": [value(step, minutes) for step in steps]} for about, value in series],
        }
        for name, (unit, series) in CHARTS.items()
    }
    return JSONResponse({"at": [step.at.timestamp() for step in steps], "charts": charts}, headers=HEADERS)
