"""Begin a word to many jobs, see how far it is, stop it."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.serve.dashboard.bulk import MOST_CHOSEN, VERBS, BulkRun, BulkRuns, begin_run
from holdfast.serve.dashboard.finding import Wanted
from holdfast.serve.dashboard.rendering import fragment
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import Visitor, VisitorDep, WriterDep, one_of
from holdfast.serve.plane import Plane, PlaneDep

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.post("/bulk/{verb}")
async def begin(request: Request, plane: PlaneDep, visitor: WriterDep, verb: str) -> Response:
    """`ids` are those chosen by hand; without them, all that `query` (the filters of the page) says."""
    if verb not in VERBS:
        raise InvalidInput("verb", f"must be one of {', '.join(VERBS)}")
    chosen = [job_id for job_id in (await one_of(request, "ids")).split(",") if job_id]
    if len(chosen) > MOST_CHOSEN:
        raise InvalidInput(
            "ids", f"at most {MOST_CHOSEN:,} can be chosen by hand; use the filters and take all of them"
        )
    everything = await one_of(request, "all") == "yes"
    if not chosen and not everything:
        raise InvalidInput("ids", "choose some jobs first")
    wanted = _wanted(await one_of(request, "query")).filter(visitor.identity)
    ids = None if everything else chosen
    run = await plane.reads.call(lambda store: begin_run(store, verb, visitor.identity, wanted, ids))
    return await _shown(visitor, runs_of(request, plane).begin(run))


@router.get("/bulk/{run_id}")
async def show(request: Request, plane: PlaneDep, visitor: VisitorDep, run_id: str) -> Response:
    return await _shown(visitor, runs_of(request, plane).known(run_id, visitor.identity))


@router.post("/bulk/{run_id}/stop")
async def stop(request: Request, plane: PlaneDep, visitor: WriterDep, run_id: str) -> Response:
    run = runs_of(request, plane).known(run_id, visitor.identity)
    run.is_stopped = True
    return await _shown(visitor, run)


def _wanted(query: str) -> Wanted:
    given = parse_qs(query)
    words = given.pop("state", [])
    if unknown := [word for word in words if word not in tuple(State)]:
        raise InvalidInput("state", f"must be one of {', '.join(State)}, got {unknown[0][:40]!r}")
    states = tuple(State(word) for word in words)
    names = {"queue", "task", "source", "spec", "worker", "error"}
    return Wanted(state=states, **{name: values[0] for name, values in given.items() if name in names})


async def _shown(visitor: Visitor, run: BulkRun) -> Response:
    return await fragment("bulk.html", visitor, run=run, verb=VERBS[run.verb])


def runs_of(request: Request, plane: Plane) -> BulkRuns:
    """Those of the whole server."""
    state = request.app.state
    if not hasattr(state, "bulk_runs"):
        state.bulk_runs = BulkRuns(plane)
    found: BulkRuns = state.bulk_runs
    return found
