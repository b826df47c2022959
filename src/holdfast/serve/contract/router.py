"""The worker contract, version 1: everything under `/internal/worker`."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.serve.contract import cache, claim, heartbeats, records, reports, sources, telling
from holdfast.serve.problems import problems

router = APIRouter(
    prefix="/internal/worker", tags=["worker"], responses=problems(401, 403, 408, 413, 415, 422, 429, 503)
)
for part in (claim, heartbeats, reports, records, sources, cache, telling):
    router.include_router(part.router)
