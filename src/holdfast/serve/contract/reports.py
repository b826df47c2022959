"""Complete, fail, release, and the batch of them. A report may be sent again: it gets the answer it got first."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain import wire
from holdfast.domain.answers import Settled, Status
from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.names import check_id, check_name
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded
from holdfast.serve.auth import Identity
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.leases import NO_LEASE, own_attempt, without_status
from holdfast.serve.contract.models import (
    Answer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    Lease,
    ReleaseRequest,
    ReportItem,
    ReportsAnswer,
    ReportsRequest,
)
from holdfast.serve.plane import Plane, PlaneDep
from holdfast.serve.problems import busy

router = APIRouter(route_class=StrictRoute)


@router.post("/complete", response_model=Answer)
async def complete(body: CompleteRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """The job has succeeded, with this result."""
    settled = await _settle(plane, body, body.worker_id, Succeeded(body.result), caller)
    return JSONResponse(without_status(wire.settled_to_json(settled)))


@router.post("/fail", response_model=FailAnswer)
async def fail(body: FailRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """The attempt has failed. `requeued`: it will be tried again; `dlq`: it has failed for good."""
    error = JobError(body.error.code, body.error.message, body.error.stack, body.error.retryable)
    settled = await _settle(plane, body, body.worker_id, Failed(error, told=body.told), caller)
    fate = {
        "requeued": settled.ok and settled.state in (State.RETRYABLE, State.PENDING),
        "dlq": settled.ok and settled.state is State.FAILED,
    }
    return JSONResponse(without_status(wire.settled_to_json(settled)) | fate)


@router.post("/release", response_model=Answer)
async def release(body: ReleaseRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Give the job back, without charge; with `delay_seconds`, for later. `throttled`: the source that the job was
    enqueued with asked for that delay (Retry-After), and is paused for as long."""
    if body.throttled and not body.delay_seconds:
        raise InvalidInput(
            "delay_seconds", "must be more than 0 with `throttled`: the seconds that the source asked for"
        )
    outcome = Snoozed(body.delay_seconds, throttled=body.throttled) if body.delay_seconds else Released()
    settled = await _settle(plane, body, body.worker_id, outcome, caller)
    return JSONResponse(without_status(wire.settled_to_json(settled)))


@router.post("/reports", response_model=ReportsAnswer)
async def reports(body: ReportsRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Many reports; the answers are in their order. If one of them breaks a rule, none is taken (422)."""
    worker = check_name(body.worker_id, "worker_id")
    given = [_report(item, worker, caller) for item in body.reports]
    answers = await plane.batching.reports(given)
    return JSONResponse({"answers": [wire.settled_to_json(settled) for settled in answers]})


async def _settle(plane: Plane, lease: Lease, worker_id: str, outcome: Outcome, caller: Identity) -> Settled:
    worker = check_name(worker_id, "worker_id")
    job_id = check_id(lease.job_id, "job_id")
    attempt, is_own = own_attempt(job_id, lease.attempt_id)
    token = lease.lease_token if is_own else NO_LEASE
    report = Report(job_id, attempt, token, outcome, worker, credential=caller.id, message_id=lease.message_id)
    [settled] = await plane.batching.reports([report])
    if settled.status is Status.BUSY:
        raise busy("the job's row is locked; its lease is still yours, so send the report again")
    return settled


def _report(item: ReportItem, worker: str, caller: Identity) -> Report:
    job_id = check_id(item.job_id, "job_id")
    value: dict[str, Any] = {**item.model_dump(), "job_id": job_id}
    _attempt, is_own = own_attempt(job_id, item.attempt_id)
    if not is_own:
        value["lease_token"] = NO_LEASE
    return wire.report_from_json(value, worker, caller.id)
