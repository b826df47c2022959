"""All of `/api/v1` but the tokens, which are an administrator's."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from holdfast.serve.api import fleet, histories, jobs, queues, records, schedules, sources, stream
from holdfast.serve.api.parameters import only_known_parameters
from holdfast.serve.problems import PROBLEMS, problems

# What any of them may answer with; a route names the others itself.
COMMON = tuple(status for status in (401, 403, 408, 415, 422, 429, 503) if status in PROBLEMS)

router = APIRouter(prefix="/api/v1", responses=problems(*COMMON), dependencies=[Depends(only_known_parameters)])
for part in (jobs, histories, queues, sources, records, schedules, fleet, stream):
    router.include_router(part.router)
