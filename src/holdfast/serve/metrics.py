"""`/metrics`: the server's own figures, and the fleet's as of the last look (`gauges.py`).

A scrape counts nothing in the store. While the store is away it is answered all the same, with `holdfast_store_up 0`
and without the fleet: figures of before the fault would look like now. It is rendered in a thread: the loop has
heartbeats to answer.

Who may read it is the setting `metrics`. Names of queues, tasks and sources are in it, and nothing of any job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from starlette.exceptions import HTTPException

from holdfast.domain.errors import SchemaMismatch, StoreUnavailable
from holdfast.domain.tokens import Scope
from holdfast.observe.board import encoder_for
from holdfast.serve.addresses import is_loopback
from holdfast.serve.api.access import check_whole_fleet
from holdfast.serve.auth import Allowed
from holdfast.serve.fleet_metrics import families, gauge
from holdfast.serve.gauges import FleetNow, Gauges
from holdfast.serve.plane import Plane, PlaneDep
from holdfast.serve.problems import Refused

# A store that takes longer than that for the very first look is, for this scrape, away: scrapers give up after ten.
FIRST_LOOK_SECONDS = 5.0

router = APIRouter(include_in_schema=False)
_allowed = Allowed(frozenset(Scope))


@router.get("/metrics")
async def metrics(request: Request, plane: PlaneDep) -> Response:
    await _check(request, plane)
    fleet = await _fleet(plane.gauges)
    encode, content_type = encoder_for(request.headers.get("accept", ""))
    text = await asyncio.to_thread(encode, _Page(plane.board.registry, fleet))
    return Response(text, media_type=None, headers={"Content-Type": content_type})


async def _check(request: Request, plane: Plane) -> None:
    mode = plane.settings.metrics
    if mode == "off":
        raise HTTPException(404)
    is_open = mode == "open" or (mode == "auto" and is_loopback(plane.settings.host))
    if not is_open or "authorization" in request.headers:
        identity = await _allowed(request)
        check_whole_fleet(identity, "/metrics")


async def _fleet(gauges: Gauges) -> FleetNow | None:
    """None while the store is away."""
    if gauges.hangs:
        return None
    try:
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            return await gauges.now()
    except (StoreUnavailable, SchemaMismatch, Refused, TimeoutError):
        return None


class _Page(CollectorRegistry):
    """Everything that is exposed, for one scrape."""

    def __init__(self, own: CollectorRegistry, fleet: FleetNow | None) -> None:
        super().__init__()
        self._own = own
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        fleet = self._fleet
        up = gauge("store_up", "1 if the store answered the last look at the fleet.", float(fleet is not None))
        about: Iterable[Metric] = () if fleet is None else families(fleet)
        return chain(self._own.collect(), [up], about)
