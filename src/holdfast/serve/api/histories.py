"""What became of a job: its events and attempts, what it said, the files it saved, its replays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from holdfast.domain.errors import InvalidInput
from holdfast.domain.logs import LogLine
from holdfast.ports import Store
from holdfast.serve.api.access import Reader, check_history, check_job, lineage_seen, may_see_original, no_job
from holdfast.serve.api.job_views import (
    ArtifactsView,
    AttemptsView,
    AttemptView,
    EventsView,
    EventView,
    LinesView,
    ReplaysView,
    ReplayView,
)
from holdfast.serve.api.parameters import AskingRoute
from holdfast.serve.api.values import JobIdPath, answer
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems
from holdfast.tasks.comparing import compare_jobs, root_of

MOST_EVENTS = 1_000
MOST_LINES = 1_000
# One line can be 64 KB: a page also ends with so many characters.
MOST_CHARACTERS = 2_000_000
_LARGEST = 2**31 - 1
_CURSOR = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})")

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"], route_class=AskingRoute, responses=problems(404))


@router.get("/events", response_model=EventsView)
async def list_events(
    plane: PlaneDep,
    identity: Reader,
    job_id: JobIdPath,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = MOST_EVENTS,
    after: Annotated[int, Query(ge=0, le=_LARGEST, description="the `seq` of the last one known")] = 0,
) -> Response:
    """The job's audit log. It outlives the job for as long as retention says."""

    def read(store: Store) -> Response:
        found = store.history(check_history(store, identity, job_id), after, limit)
        if not found.items and store.queue_of(job_id) is None:
            raise no_job(job_id)
        events = [EventView.of(event) for event in found.items]
        return answer(EventsView(events=events, after=None if found.after is None else int(found.after)))

    return await plane.reads.call(read)


@router.get("/attempts", response_model=AttemptsView)
async def list_attempts(plane: PlaneDep, identity: Reader, job_id: JobIdPath) -> Response:
    """One entry for each execution, with what it used."""

    def read(store: Store) -> Response:
        found = store.attempts(check_job(store, identity, job_id))
        return answer(AttemptsView(attempts=[AttemptView.model_validate(attempt) for attempt in found]))

    return await plane.reads.call(read)


@router.get("/logs", response_model=LinesView)
async def list_lines(
    plane: PlaneDep,
    identity: Reader,
    job_id: JobIdPath,
    attempt: Annotated[int | None, Query(ge=0, le=_LARGEST)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LINES)] = MOST_LINES,
    after: Annotated[str | None, Query(description="`<attempt>.<number>` of the last line known")] = None,
) -> Response:
    """What the job said, in order. A page may hold fewer lines than asked for, if they are long."""
    cursor = _cursor(after)

    def read(store: Store) -> Response:
        known = check_job(store, identity, job_id)
        found = store.logs(known, attempt, cursor, limit + 1)
        page = _page(found[:limit])
        return answer(LinesView.of(page, len(found) > len(page)))

    return await plane.reads.call(read)


@router.get("/artifacts", response_model=ArtifactsView)
async def list_artifacts(plane: PlaneDep, identity: Reader, job_id: JobIdPath) -> Response:
    """The files that its attempts saved, as they are on record."""

    def read(store: Store) -> Response:
        return answer(ArtifactsView.of(store.artifacts(check_job(store, identity, job_id))))

    return await plane.reads.call(read)


@router.get("/replays", response_model=ReplaysView)
async def list_replays(plane: PlaneDep, identity: Reader, job_id: JobIdPath) -> Response:
    """The jobs that ran its spec again, the oldest first and the latest hundred, and whether they came to the same.

    What is in files is compared by media type and SHA-256; `equal` is null where that, or the state, does not tell."""

    def read(store: Store) -> Response:
        [job] = lineage_seen(store, identity, [store.job(check_job(store, identity, job_id))])
        replays = [replay for replay in store.replays(job.id) if identity.may_use(replay.queue)]
        compared = [ReplayView.of(replay, compare_jobs(store, job, replay)) for replay in replays]
        root = root_of(store, job, may_see_original(identity))
        return answer(ReplaysView(replay_of=job.replay_of, root=root, replays=compared))

    return await plane.reads.call(read)


def _cursor(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    found = _CURSOR.fullmatch(after)
    if found is None:
        raise InvalidInput("after", f"must be <attempt>.<number> of a line, got {after[:40]!r}")
    return int(found[1]), int(found[2])


def _page(lines: Sequence[LogLine]) -> list[LogLine]:
    page: list[LogLine] = []
    size = 0
    for line in lines:
        size += len(line.message) + len(repr(line.fields))
        if page and size > MOST_CHARACTERS:
            break
        page.append(line)
    return page
