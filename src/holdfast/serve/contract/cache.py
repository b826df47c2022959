"""The response cache, for jobs that run elsewhere. It is everybody's, so whoever reads or fills it shows a lease that
it holds now: a token without a job gets nothing out of it and nothing into it."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from holdfast.domain.answers import Reason, Verb
from holdfast.domain.sources import Cached
from holdfast.ports import Store
from holdfast.serve.body import StrictRoute
from holdfast.serve.contract.caller import Caller
from holdfast.serve.contract.governing_models import CachedAnswer, CacheGetRequest, CachePutRequest, LeaseAnswer
from holdfast.serve.contract.leases import shown
from holdfast.serve.plane import PlaneDep

router = APIRouter(route_class=StrictRoute)


@router.post("/cache/get", response_model=CachedAnswer)
async def get(body: CacheGetRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """What a source answered to this key, if it is kept and fresh."""
    lease = shown(body.attempt_id, body.lease_token, body.worker_id, caller.id)

    def look(store: Store) -> Cached | Reason | None:
        return store.check_lease(lease, Verb.SOURCE) or store.cached(body.source, body.key)

    found = await plane.reads.call(look)
    reason = found if isinstance(found, Reason) else None
    value = found.value if isinstance(found, Cached) else None
    return JSONResponse({"ok": reason is None, "reason": reason, "found": isinstance(found, Cached), "value": value})


@router.post("/cache/put", response_model=LeaseAnswer)
async def put(body: CachePutRequest, plane: PlaneDep, caller: Caller) -> JSONResponse:
    """Keep what a source answered for `ttl_seconds`; what was kept under the key before is replaced."""
    lease = shown(body.attempt_id, body.lease_token, body.worker_id, caller.id)

    def keep(store: Store) -> Reason | None:
        reason = store.check_lease(lease, Verb.SOURCE)
        if reason is None:
            store.keep_cached(body.source, body.key, body.value, body.ttl_seconds)
        return reason

    reason = await plane.writes.call(keep)
    return JSONResponse({"ok": reason is None, "reason": reason})
