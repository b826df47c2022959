"""`POST /internal/worker/claim`: one job or several, now or as soon as there are some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from holdfast.domain import wire
from holdfast.domain.names import check_name
from holdfast.domain.spec import Undecodable
from holdfast.serve.auth import Identity, get_authentication
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.models import ClaimAnswer, ClaimRequest
from holdfast.serve.lines import Found, Wanted
from holdfast.serve.plane import PlaneDep

router = APIRouter(route_class=StrictRoute)

_NOT_OF_A_JOB = ("claimed", "jobs", "waited_ms", "again_in_seconds")
_NOTHING = dict.fromkeys(name for name in ClaimAnswer.model_fields if name not in _NOT_OF_A_JOB)


@router.post("/claim", response_model=ClaimAnswer)
async def claim(body: ClaimRequest, request: Request, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Claim a job, waiting up to `max_wait_ms` for one. `claimed: false` is an answer: ask again."""
    arrived = time.monotonic()
    wanted = _wanted(body, caller)
    gone = _gone(request, caller) if body.max_wait_ms else _closed(request)
    found = await plane.hub.claim(wanted, body.max_wait_ms / 1000, gone)
    told = [wire.claimed_to_json(job) for job in found.jobs]
    if any(isinstance(job["payload"], Undecodable) for job in told):
        plane.hub.fail_undecodable(wanted, found.jobs)
        told = [job for job in told if not isinstance(job["payload"], Undecodable)]
    return JSONResponse(_answer(body, found, told, max(0.0, found.asked_at - arrived)))


def _wanted(body: ClaimRequest, caller: Identity) -> Wanted:
    streams = None if body.streams is None else _names(body.streams, "streams")
    if streams is not None:
        caller.check_queues(streams)
    return Wanted(
        worker=check_name(body.worker_id, "worker_id"),
        limit=body.limit or 1,
        queues=caller.queues if streams is None else streams,
        tasks=None if body.tasks is None else _names(body.tasks, "tasks"),
        credential=caller.id,
        request_id=None if body.request_id is None else check_name(body.request_id, "request_id"),
    )


def _names(given: Sequence[str], field: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name(name, field) for name in given))


async def _gone(request: Request, caller: Identity) -> None:
    """Ends when the client has closed its connection, or its credential is no longer good."""
    revoked = asyncio.ensure_future(get_authentication(request).revocations.over(caller.id))
    closed = asyncio.ensure_future(_closed(request))
    try:
        await asyncio.wait((closed, revoked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        closed.cancel()
        revoked.cancel()


async def _closed(request: Request) -> None:
    """After the body nothing else comes but the end."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(body: ClaimRequest, found: Found, told: list[dict[str, Any]], waited: float) -> dict[str, Any]:
    answer = _NOTHING | wire.claims_to_json(told, waited)
    if not found.jobs and found.again_in is not None:
        answer["again_in_seconds"] = round(found.again_in, 3)
    if body.limit is None:
        del answer["jobs"]
    return answer
