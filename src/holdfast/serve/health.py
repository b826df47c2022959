"""Whether the process is alive, and whether it can be sent requests. Neither needs a token, neither tells a secret."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from holdfast.domain.errors import SchemaMismatch, StoreUnavailable
from holdfast.serve.plane import Plane, PlaneDep
from holdfast.serve.problems import Refused
from holdfast.wiring.sql import check_schema

READY_WITHIN_SECONDS = 5.0

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ready", "stopping", "store away", "schema does not fit"]


@router.get("/healthz")
async def healthz() -> Health:
    """The process is alive. A store that is away is no reason to restart it."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "not now"}})
async def readyz(plane: PlaneDep, response: Response) -> Readiness:
    """The store answers and its schema fits."""
    readiness = Readiness(status="stopping") if plane.stopping.is_set() else await _ask(plane)
    if readiness.status != "ready":
        response.status_code = 503
    return readiness


async def _ask(plane: Plane) -> Readiness:
    try:
        async with asyncio.timeout(READY_WITHIN_SECONDS):
            await plane.tokens.call(check_schema)
    except SchemaMismatch:
        return Readiness(status="schema does not fit")
    except (StoreUnavailable, Refused, TimeoutError):
        return Readiness(status="store away")
    return Readiness(status="ready")
