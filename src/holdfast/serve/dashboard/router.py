"""All pages. They are no part of the API's description: what programs need, they find there."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.serve.dashboard import (
    audit,
    bulk_routes,
    charts,
    dead,
    job,
    jobs,
    live,
    overview,
    queues,
    schedules,
    signing_in,
    sources,
    static,
    verifying_routes,
    workers,
)

router = APIRouter(include_in_schema=False)
PARTS = (
    static, signing_in, live, charts, overview, jobs, bulk_routes, job, queues, workers, sources, dead, schedules,
    audit, verifying_routes,
)  # fmt: skip
for part in PARTS:
    router.include_router(part.router)
