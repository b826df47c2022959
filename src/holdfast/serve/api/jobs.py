"""Create, get, list, cancel, requeue and replay jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from holdfast.domain.job import Enqueued
from holdfast.domain.lifecycle import State
from holdfast.ports import Store
from holdfast.serve.api import operating
from holdfast.serve.api.access import Client, Reader, check_job, check_stand_in, lineage_seen, without_names
from holdfast.serve.api.creating import create, create_all
from holdfast.serve.api.job_forms import BatchForm, NewJobForm
from holdfast.serve.api.job_views import (
    BatchView,
    EnqueuedView,
    JobsView,
    JobView,
    ListedView,
    OperatedView,
)
from holdfast.serve.api.parameters import AskingRoute
from holdfast.serve.api.tracing import TraceparentHeader
from holdfast.serve.api.values import JobIdPath, answer
from holdfast.serve.plane import PlaneDep
from holdfast.serve.problems import problems

MOST_LISTED = 1_000

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=AskingRoute)
EXISTING: dict[int | str, dict[str, Any]] = {
    200: {"model": EnqueuedView, "description": "A job that was there already stands in for it."}
}


@router.post("", status_code=201, response_model=EnqueuedView, responses={**EXISTING, **problems(409, 413)})
async def create_job(plane: PlaneDep, identity: Client, form: NewJobForm, traceparent: TraceparentHeader) -> Response:
    """Create one job. With an `id` of the client's own it is safe to ask again."""
    lease = plane.settings.timing.lease
    enqueued = await plane.writes.call(lambda store: create(store, identity, form, lease, traceparent))
    return answer(EnqueuedView.model_validate(enqueued), 201 if enqueued.created else 200)


@router.post("/batch", status_code=201, response_model=BatchView, responses=problems(409, 413))
async def create_jobs(plane: PlaneDep, identity: Client, form: BatchForm, traceparent: TraceparentHeader) -> Response:
    """Create many jobs, all or nothing."""
    lease = plane.settings.timing.lease
    enqueued = await plane.writes.call(lambda store: create_all(store, identity, form.jobs, lease, traceparent))
    return answer(BatchView.of(enqueued), 201)


@router.get("", response_model=JobsView)
async def list_jobs(
    plane: PlaneDep,
    identity: Reader,
    state: Annotated[list[State], Query(description="may be repeated")] = [],  # noqa: B006
    queue: Annotated[str | None, Query()] = None,
    task: Annotated[str | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
    after: Annotated[str | None, Query(description="`after` of the page before")] = None,
) -> Response:
    """Jobs, the newest first, page by page."""
    if queue is not None:
        identity.check_queues([queue])
    queues = identity.queues if queue is None else (queue,)

    def read(store: Store) -> Response:
        page = store.listed(states=state, queues=queues, task=task, limit=limit, after=after)
        jobs = lineage_seen(store, identity, [item.job for item in page.items])
        shown = [ListedView.of(replace(item, job=job)) for item, job in zip(page.items, jobs, strict=True)]
        return answer(JobsView(jobs=shown, after=page.after))

    return await plane.reads.call(read)


@router.get("/{job_id}", response_model=JobView, responses=problems(404))
async def get_job(plane: PlaneDep, identity: Reader, job_id: JobIdPath) -> Response:
    """One job, all columns."""

    def read(store: Store) -> Response:
        [job] = lineage_seen(store, identity, [store.job(check_job(store, identity, job_id))])
        return answer(JobView.model_validate(job))

    return await plane.reads.call(read)


@router.post("/{job_id}/cancel", response_model=OperatedView, responses=problems(404, 409))
async def cancel_job(plane: PlaneDep, identity: Client, job_id: JobIdPath) -> OperatedView:
    """Cancel a job that has not ended; a running one is asked to stop (`cancel_requested`)."""
    return await plane.writes.call(lambda store: operating.cancel(store, check_job(store, identity, job_id)))


@router.post("/{job_id}/requeue", response_model=OperatedView, responses=problems(404, 409))
async def requeue_job(plane: PlaneDep, identity: Client, job_id: JobIdPath) -> OperatedView:
    """Make a failed or cancelled job pending again, with fresh budgets."""
    return await plane.writes.call(lambda store: operating.requeue(store, check_job(store, identity, job_id)))


@router.post(
    "/{job_id}/replay", status_code=201, response_model=EnqueuedView, responses={**EXISTING, **problems(404, 409)}
)
async def replay_job(
    plane: PlaneDep,
    identity: Client,
    job_id: JobIdPath,
    id: Annotated[
        str | None,
        Query(description="of the new job; makes it safe to ask again", json_schema_extra={"format": "uuid"}),
    ] = None,
) -> Response:
    """Run the same task with the same payload and options again, as a new job that says whose replay it is."""

    def replay(store: Store) -> Enqueued:
        known = check_job(store, identity, job_id)
        with without_names(identity):
            return check_stand_in(store, identity, store.replay(known, id))

    enqueued = await plane.writes.call(replay)
    return answer(EnqueuedView.model_validate(enqueued), 201 if enqueued.created else 200)
