"""Entering and leaving sources from inside a job that runs elsewhere. Both may be sent again."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain.answers import Reason
from holdfast.domain.names import storable_text
from holdfast.domain.sources import Entered, Entry, Leaving
from holdfast.ports import Store
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.governing_models import EnterAnswer, EnterRequest, LeaseAnswer, LeaveRequest
from holdfast.serve.contract.leases import shown, unless_lost
from holdfast.serve.plane import PlaneDep

router = APIRouter(route_class=StrictRoute)

LONGEST_CODE = 1_000


@router.post("/source/enter", response_model=EnterAnswer)
async def enter(body: EnterRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Ask to be let into a source. `admitted: false` is an answer: ask again after `retry_in` seconds."""
    lease = shown(body.attempt_id, body.lease_token, body.worker_id, caller.id)
    entry = Entry(body.source, body.number, body.prepaid)

    def ask(store: Store) -> Entered | Reason:
        return unless_lost(store, lease, lambda: store.enter_source(lease, entry))

    entered = await plane.writes.call(ask)
    reason = entered if isinstance(entered, Reason) else None
    found = Entered(False) if isinstance(entered, Reason) else entered
    value = {"admitted": found.admitted, "retry_in": found.retry_in, "why": found.reason}
    return JSONResponse({"ok": reason is None, "reason": reason, **value})


@router.post("/source/leave", response_model=LeaseAnswer)
async def leave(body: LeaveRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Say that an entry is over and how it ended. Leaving what was left before changes nothing."""
    lease = shown(body.attempt_id, body.lease_token, body.worker_id, caller.id)
    code = storable_text(body.code, LONGEST_CODE)
    leaving = Leaving(body.source, body.number, body.end, code, body.retryable, body.retry_after)

    def tell(store: Store) -> Reason | None:
        return unless_lost(store, lease, lambda: store.leave_source(lease, leaving))

    reason = await plane.writes.call(tell)
    return JSONResponse({"ok": reason is None, "reason": reason})
