"""`GET /api/v1/events/stream`: transitions as they happen, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.domain.feed import Transition
from holdfast.domain.names import check_id
from holdfast.serve.api.access import Reader
from holdfast.serve.api.live import LiveFeed
from holdfast.serve.api.parameters import AskingRoute
from holdfast.serve.api.speaking import Speaking, place_of
from holdfast.serve.plane import Plane, PlaneDep

LONGEST_SECONDS = 86_400.0

router = APIRouter(tags=["events"], route_class=AskingRoute)


class EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        # Nobody on the way may keep it, or hold it back until there is more.
        super().__init__(chunks, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@dataclass(frozen=True, slots=True)
class Filter:
    queues: frozenset[str] | None
    tasks: frozenset[str]
    job_id: str | None

    def __call__(self, transition: Transition) -> bool:
        return (
            (self.queues is None or transition.queue in self.queues)
            and (not self.tasks or transition.task in self.tasks)
            and (self.job_id is None or transition.job_id == self.job_id)
        )


@router.get("/events/stream", status_code=200, response_class=EventStream, response_model=None)
async def stream_events(
    request: Request,
    plane: PlaneDep,
    identity: Reader,
    queue: Annotated[list[str], Query(description="may be repeated")] = [],  # noqa: B006
    task: Annotated[list[str], Query(description="may be repeated")] = [],  # noqa: B006
    job: Annotated[str | None, Query(json_schema_extra={"format": "uuid"})] = None,
    seconds: Annotated[float, Query(ge=0, le=LONGEST_SECONDS, description="then it ends")] = LONGEST_SECONDS,
    last_event_id: Annotated[str | None, Header(description="the id of the last event known")] = None,
) -> EventStream:
    """Transitions of jobs as they happen, as server-sent events: `transition`, and `gap` where some were left out."""
    identity.check_queues(queue)
    wanted = frozenset(queue) if queue else None if identity.queues is None else frozenset(identity.queues)
    wants = Filter(wanted, frozenset(task), None if job is None else check_id(job, "job"))
    place = None if last_event_id is None else place_of(last_event_id)
    live = live_feed(request, plane)
    listener = await live.listen(wants, identity.id)
    speaking = Speaking(request, identity, live, listener, plane.stopping, seconds)
    return EventStream(speaking.chunks(place), lambda: live.leave(listener))


def live_feed(request: Request, plane: Plane) -> LiveFeed:
    """One for the whole server."""
    state = request.app.state
    if not hasattr(state, "live_feed"):
        state.live_feed = LiveFeed(lambda after, limit: plane.reads.call(lambda store: store.feed(after, limit)))
    found: LiveFeed = state.live_feed
    return found
