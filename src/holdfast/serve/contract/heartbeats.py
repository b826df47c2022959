"""Heartbeats, one by one and in batches. Those of all clients reach the store together (`batching.py`)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain import wire
from holdfast.domain.answers import Beat, Beaten, Status
from holdfast.domain.jsonable import iso
from holdfast.domain.names import check_id, check_name
from holdfast.serve.auth import Identity
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.leases import NO_LEASE, own_attempt, without_status
from holdfast.serve.contract.models import (
    BeatItem,
    HeartbeatAnswer,
    HeartbeatRequest,
    HeartbeatsAnswer,
    HeartbeatsRequest,
)
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import busy

router = APIRouter(route_class=StrictRoute)


@router.post("/heartbeat", response_model=HeartbeatAnswer)
async def heartbeat(body: HeartbeatRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Renew one lease. `ok: false` means that the job is no longer yours: stop working on it."""
    worker = check_name(body.worker_id, "worker_id")
    job_id = check_id(body.job_id, "job_id")
    beat = Beat(job_id, 0, body.lease_token, worker, body.progress, caller.id, by_token=True)
    [beaten] = await plane.batching.heartbeats([beat])
    if beaten.status is Status.BUSY:
        raise busy("the job's row is locked; its lease is still yours, so ask again")
    return JSONResponse(without_status(_answer(beaten)))


@router.post("/heartbeats", response_model=HeartbeatsAnswer)
async def heartbeats(body: HeartbeatsRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Renew many leases; the answers are in the order of the beats. `status: busy` is still yours: ask again."""
    worker = check_name(body.worker_id, "worker_id")
    answers = await plane.batching.heartbeats([_beat(item, worker, caller) for item in body.beats])
    return JSONResponse({"answers": [_answer(beaten) for beaten in answers]})


def _answer(beaten: Beaten) -> dict[str, Any]:
    """With the time as the client API writes it."""
    expires_at = beaten.lease_expires_at
    return wire.beaten_to_json(beaten) | {"lease_expires_at": None if expires_at is None else iso(expires_at)}


def _beat(item: BeatItem, worker: str, caller: Identity) -> Beat:
    job_id = check_id(item.job_id, "job_id")
    attempt, is_own = own_attempt(job_id, item.attempt_id)
    return Beat(job_id, attempt, item.lease_token if is_own else NO_LEASE, worker, item.progress, caller.id)
