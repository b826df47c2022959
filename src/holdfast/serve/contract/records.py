"""Records of a job that runs elsewhere. Sent again they are the same records: their keys are what they were."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain.answers import Reason
from holdfast.domain.dedupe import dedupe_key
from holdfast.domain.errors import InvalidInput
from holdfast.domain.record import SINGLE_KEY, NewRecord, Written
from holdfast.ports import Store
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.governing_models import RecordBody, RecordsAnswer, RecordsRequest
from holdfast.serve.contract.leases import shown, unless_lost
from holdfast.serve.plane import PlaneDep

router = APIRouter(route_class=StrictRoute)


@router.post("/records", response_model=RecordsAnswer)
async def records(body: RecordsRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Write the records of an attempt that still holds its lease, all of them or none; the answers are in their order.
    Sent again, what was `created` is `existing`."""
    lease = shown(body.attempt_id, body.lease_token, body.worker_id, caller.id)

    def write(store: Store) -> list[Written] | Reason:
        new = [_new(number, record) for number, record in enumerate(body.records)]
        return unless_lost(store, lease, lambda: store.write_records(new, lease))

    written = await plane.writes.call(write)
    if isinstance(written, Reason):
        return JSONResponse({"ok": False, "reason": written, "records": []})
    found = [{"id": one.id, "dedupe_key": one.dedupe_key, "kept": one.kept} for one in written]
    return JSONResponse({"ok": True, "reason": None, "records": found})


def _new(number: int, body: RecordBody) -> NewRecord:
    return NewRecord(
        scope=body.scope,
        source=body.source,
        dedupe_key=_key(number, body),
        data=body.data,
        external_id=body.external_id,
        strength=body.strength,
        replace=body.replace,
    )


def _key(number: int, body: RecordBody) -> str:
    if body.dedupe_key is not None:
        return body.dedupe_key
    if body.replace:
        return SINGLE_KEY
    try:
        return dedupe_key(body.data, body.external_id)
    except InvalidInput as error:
        within = "" if error.field in RecordBody.model_fields else "data."
        raise InvalidInput(f"records.{number}.{within}{error.field}", error.rule) from None
