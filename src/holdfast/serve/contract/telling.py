"""What a remote worker tells besides: log lines, its tasks and schedules, its row; and which store this is."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain.errors import InvalidInput, NotFound
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_id, check_name
from holdfast.domain.schedule import Declaration, ScheduleFailure
from holdfast.domain.views import WorkerRow
from holdfast.ports import Store
from holdfast.serve.auth import Identity
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.telling_models import (
    Accepted,
    AnnounceAnswer,
    AnnounceRequest,
    LogLineBody,
    LogsRequest,
    StoreAnswer,
    WorkerBody,
)
from holdfast.serve.plane import PlaneDep

router = APIRouter(route_class=StrictRoute)

CONTRACT = 1


@router.post("/logs", response_model=Accepted)
async def logs(body: LogsRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Lines that jobs said. A line that is sent twice is stored once; those of a job that is not there are left out."""
    check_name(body.worker_id, "worker_id")
    lines = [_line(line) for line in body.lines]
    await plane.control.call(lambda store: store.append_logs(_allowed(store, lines, caller)))
    return JSONResponse({"ok": True})


@router.post("/announce", response_model=AnnounceAnswer)
async def announce(body: AnnounceRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """The tasks that a worker can run, and the schedules that its code declares."""
    check_name(body.worker_id, "worker_id")
    tasks = [TaskInfo(task.name, task.version, task.kind, task.on_lost_lease, task.defaults) for task in body.tasks]
    declared = None if body.schedules is None else [_declaration(item, caller) for item in body.schedules]
    kept = [_declaration(item, caller) for item in body.kept]

    def tell(store: Store) -> tuple[ScheduleFailure, ...]:
        if tasks:
            store.announce(tasks)
        if kept:
            store.keep_schedules(kept)
        return () if declared is None else store.announce_schedules(declared)

    failures = await plane.writes.call(tell)
    told = [{"schedule": failure.schedule, "message": failure.message} for failure in failures]
    return JSONResponse({"failures": told})


@router.post("/worker", response_model=Accepted)
async def worker(body: WorkerBody, plane: PlaneDep, _caller: Caller) -> JSONResponse:
    """The worker's own row, for people to look at."""
    given = body.model_dump()
    queues = given.pop("queues")
    row = WorkerRow(**given, queues=None if queues is None else tuple(queues))
    await plane.writes.call(lambda store: store.keep_worker(row))
    return JSONResponse({"ok": True})


@router.get("/store", response_model=StoreAnswer)
async def store(plane: PlaneDep, _caller: Caller) -> JSONResponse:
    """Which store this is: workers that share files find them under its id."""
    found = await plane.control.call(lambda store: store.store_id())
    return JSONResponse({"store_id": found, "contract": CONTRACT, "version": version("holdfast")})


def _line(line: LogLineBody) -> LogLine:
    if line.at.tzinfo is None:
        raise InvalidInput("at", "must carry a time zone")
    job_id = check_id(line.job_id, "job_id")
    return LogLine(job_id, line.attempt, line.number, line.at, line.stream, line.message, line.level, line.fields)


def _allowed(store: Store, lines: list[LogLine], caller: Identity) -> list[LogLine]:
    """A token that is limited to queues writes to the logs of their jobs only."""
    if caller.queues is None:
        return lines
    may = {job_id: _may_write(store, job_id, caller) for job_id in {line.job_id for line in lines}}
    return [line for line in lines if may[line.job_id]]


def _may_write(store: Store, job_id: str, caller: Identity) -> bool:
    try:
        return caller.may_use(store.job(job_id).queue)
    except NotFound:
        return False


def _declaration(given: dict[str, Any], caller: Identity) -> Declaration:
    value = dict(given)
    declaration = Declaration.from_json(check_name(value.pop("name", None), "name"), value)
    queue = declaration.job.get("queue")
    if queue is not None:
        caller.check_queues([queue])
    return declaration
