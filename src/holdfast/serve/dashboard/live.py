"""`/live`: tells an open page that something has changed, at most twice a second. What, the page asks for itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request

from holdfast.domain.errors import HoldfastError
from holdfast.domain.names import check_id
from holdfast.serve.api.live import Listener
from holdfast.serve.api.stream import EventStream, Filter, live_feed
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import SignInNeeded, Visitor, VisitorDep, visitor
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import Refused

KEEP_ALIVE_SECONDS = 15.0
GAP_SECONDS = 0.5
CHECK_SECONDS = 2.0

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/live", response_class=EventStream, response_model=None)
async def live(
    request: Request, plane: PlaneDep, visitor: VisitorDep, job: Annotated[str | None, Query()] = None
) -> EventStream:
    queues = None if visitor.identity.queues is None else frozenset(visitor.identity.queues)
    wants = Filter(queues, frozenset(), None if job is None else check_id(job, "job"))
    feed = live_feed(request, plane)
    listener = await feed.listen(wants, visitor.identity.id)
    chunks = _changes(request, visitor, listener, plane.stopping)
    return EventStream(chunks, lambda: feed.leave(listener))


async def _changes(
    request: Request, signed_in: Visitor, listener: Listener, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    """The server's time first: ages are told by it."""
    yield f"retry: 2000\nevent: now\ndata: {time.time() * 1000:.0f}\n\n".encode()
    checked_at = time.monotonic()
    while not stopping.is_set():
        await listener.wait(stopping, KEEP_ALIVE_SECONDS)
        lost, told = listener.take()
        if time.monotonic() - checked_at >= CHECK_SECONDS:
            if not await _is_still(request, signed_in):
                return
            checked_at = time.monotonic()
        yield f"event: change\ndata: {len(told) + lost}\n\n".encode() if told or lost else b": still here\n\n"
        await asyncio.sleep(GAP_SECONDS)


async def _is_still(request: Request, signed_in: Visitor) -> bool:
    try:
        return (await visitor(request)).identity == signed_in.identity
    except SignInNeeded:
        return False
    except Refused as refused:
        return refused.status != 403
    except HoldfastError:  # the store is away: neither a yes nor a no
        return True
