"""What a remote worker tells besides: log lines, its tasks, schedules and sources, its row; and which store this is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from holdfast.domain import wire
from holdfast.domain.answers import Beat, Reason
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import NewJob
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_id, check_name
from holdfast.domain.schedule import Declaration, ScheduleFailure
from holdfast.domain.sources import SourceDeclaration
from holdfast.domain.views import WorkerRow
from holdfast.ports import Store
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.telling_models import (
    Accepted,
    AnnounceAnswer,
    AnnounceRequest,
    LogLineBody,
    LogsRequest,
    ShownLease,
    StoreAnswer,
    TaskBody,
    WorkerBody,
)
from holdfast.serve.contract.telling_rights import may_announce, may_declare, own_schedules
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import Refused

router = APIRouter(route_class=StrictRoute)

CONTRACT = 1
SOME_TASK = "task"  # stands for any: the defaults are what is checked


@router.post("/logs", response_model=Accepted)
async def logs(body: LogsRequest, plane: PlaneDep, caller: Caller, request: Request) -> JSONResponse:
    """Lines that jobs said, under the leases of their attempts, which may be over. A line that is sent twice is stored
    once; those of a job that is not there are left out. A line without its lease is 403, and then none is stored."""
    worker = check_name(body.worker_id, "worker_id")
    lines = [_line(line) for line in body.lines]
    leases = [_shown(lease, worker, caller.id) for lease in body.leases]

    def append(store: Store) -> bool:
        reasons = store.lease_reasons(leases)
        judged = {(lease.job_id, lease.attempt): reason for lease, reason in zip(leases, reasons, strict=True)}
        if any(judged.get((line.job_id, line.attempt), Reason.UNKNOWN_LEASE) is Reason.UNKNOWN_LEASE for line in lines):
            return False
        store.append_logs([line for line in lines if judged[line.job_id, line.attempt] is None])
        return True

    if not await plane.control.call(append):
        request.state.refusal = "wrong_lease"
        raise Refused(
            403,
            "Not for this token",
            "`leases` must hold, for each attempt that has a line here, the lease token that this credential was given"
            " for it; nothing was stored",
        )
    return JSONResponse({"ok": True})


@router.post("/announce", response_model=AnnounceAnswer)
async def announce(body: AnnounceRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """The tasks that a worker can run, and the schedules and the limits of sources that its code declares. A token that
    is limited to queues speaks of tasks and schedules of its queues only; else it is 403, and nothing is stored."""
    check_name(body.worker_id, "worker_id")
    tasks = [_task(number, task) for number, task in enumerate(body.tasks)]
    declared = [_declaration(item) for item in body.schedules or ()]
    kept = [_declaration(item) for item in body.kept]
    sources = [SourceDeclaration(item.name, item.limits) for item in body.sources]

    def tell(store: Store) -> tuple[ScheduleFailure, ...]:
        may_declare(sources, caller)
        may_announce(store, tasks, caller)
        own, own_kept = (own_schedules(store, given, tasks, caller) for given in (declared, kept))
        if sources:  # first: only here the store may still find a limit that cannot be
            store.announce_sources(sources)
        if tasks:
            store.announce(tasks)
        if own_kept:
            store.keep_schedules(own_kept)
        return store.announce_schedules(own)

    failures = await plane.writes.call(tell)
    told = [{"schedule": failure.schedule, "message": failure.message} for failure in failures]
    return JSONResponse({"failures": told})


@router.post("/worker", response_model=Accepted)
async def worker(body: WorkerBody, plane: PlaneDep, caller: Caller, request: Request) -> JSONResponse:
    """The worker's own row, for people to look at. It belongs to the credential that wrote it first."""
    given = body.model_dump()
    named = given.pop("queues")
    caller.check_queues(named or ())
    queues: Sequence[str] | None = caller.queues if named is None else named
    row = WorkerRow(**given, queues=None if queues is None else tuple(queues))
    if not await plane.writes.call(lambda store: store.keep_worker_of(caller.id, row)):
        request.state.refusal = "another_worker"
        raise Refused(403, "Not for this token", "a worker of this id is known, and it has another credential")
    return JSONResponse({"ok": True})


@router.get("/store", response_model=StoreAnswer)
async def store(plane: PlaneDep, _caller: Caller) -> JSONResponse:
    """Which store this is: workers that share files find them under its id."""
    found = await plane.control.call(lambda store: store.store_id())
    return JSONResponse({"store_id": found, "contract": CONTRACT, "version": version("holdfast")})


def _line(line: LogLineBody) -> LogLine:
    job_id = check_id(line.job_id, "job_id")
    return LogLine(job_id, line.attempt, line.number, line.at, line.stream, line.message, line.level, line.fields)


def _shown(lease: ShownLease, worker: str, credential: str) -> Beat:
    job_id, attempt = wire.parse_attempt_id(lease.attempt_id)
    return Beat(job_id, attempt, lease.lease_token, worker, credential=credential)


def _task(number: int, body: TaskBody) -> TaskInfo:
    """With defaults that jobs can have: else nobody could enqueue the task any more."""
    task = TaskInfo(check_name(body.name, "name"), body.version, body.kind, body.on_lost_lease, body.defaults)
    try:
        NewJob.from_options({**task.job_options(), "task": SOME_TASK})
    except InvalidInput as error:
        raise InvalidInput(f"tasks.{number}.defaults.{error.field}", error.rule) from None
    return task


def _declaration(given: dict[str, Any]) -> Declaration:
    value = dict(given)
    return Declaration.from_json(check_name(value.pop("name", None), "name"), value)
