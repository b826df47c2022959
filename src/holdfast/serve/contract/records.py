"""Records of a job that runs elsewhere. Sent again they are the same records: their keys are what they were."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain.answers import Reason
from holdfast.domain.dedupe import HASHED, dedupe_key
from holdfast.domain.errors import InvalidInput
from holdfast.domain.record import EXTERNAL, SINGLE_KEY, NewRecord, Written
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
    try:
        key = _given_key(body) or _made_key(body)
        if key.startswith(HASHED) and not body.source:
            raise InvalidInput("source", "must be named; only the one record of a scope, or one with an id, has none")
    except InvalidInput as error:
        within = "" if error.field in RecordBody.model_fields else "data."
        raise InvalidInput(f"records.{number}.{within}{error.field}", error.rule) from None
    return key


def _given_key(body: RecordBody) -> str | None:
    if body.dedupe_key is not None and body.external_id is not None and body.dedupe_key != EXTERNAL + body.external_id:
        raise InvalidInput(
            "dedupe_key", f"must be {EXTERNAL}{body.external_id}, which is that of its external_id, or be left out"
        )
    return body.dedupe_key


def _made_key(body: RecordBody) -> str:
    """Of a source there is never just one: what shall replace what is said by a key."""
    if not body.replace or body.external_id is not None:
        return dedupe_key(body.data, body.external_id)
    if body.source:
        raise InvalidInput(
            "replace",
            "with a source goes with an external_id or a dedupe_key; without all three it is the one record of a scope",
        )
    return SINGLE_KEY
