"""`/jobs/ID`: one job, all that is known of it, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from holdfast.domain.artifacts import Artifact
from holdfast.domain.attempts import attempts_in
from holdfast.domain.errors import NotFound
from holdfast.domain.job import Attempt, AuditEvent, Job
from holdfast.domain.lifecycle import ACTIVE, State
from holdfast.domain.logs import LogLine
from holdfast.domain.timeline import lay_out
from holdfast.domain.views import Refusal
from holdfast.ports import Store
from holdfast.serve.api import operating
from holdfast.serve.api.access import (
    check_history,
    check_job,
    check_stand_in,
    lineage_seen,
    may_see_original,
    no_job,
    without_names,
)
from holdfast.serve.auth import Identity
from holdfast.serve.dashboard.acting import done
from holdfast.serve.dashboard.drawing import Drawing, draw
from holdfast.serve.dashboard.rendering import HEADERS, fragment, page
from holdfast.serve.dashboard.routes import PageRoute
from holdfast.serve.dashboard.session import VisitorDep, WriterDep
from holdfast.serve.plane import PlaneDep
from holdfast.tasks.comparing import compare_jobs, root_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MOST_EVENTS = 600  # the last so many, of which attempts and timeline are drawn
MOST_LISTED = 200
MOST_DRAWN = 60
MOST_LINES = 300
LONGEST_LINE = 2_000
MOST_LINE_CHARACTERS = 200_000  # of all lines that are shown together
MOST_ATTEMPTS = 100
MOST_REPLAYS = 20
OPERATIONS = {"cancel": "Cancelled, or asked to stop.", "requeue": "Requeued with fresh budgets."}


@dataclass(frozen=True, slots=True)
class Shown:
    """All of it. `job` is None once retention has taken the row: its history stays for longer."""

    id: str
    now: datetime
    job: Job | None
    events: tuple[AuditEvent, ...]
    attempts: list[Attempt]
    refusals: list[Refusal]
    artifacts: list[Artifact]
    replays: list[dict[str, Any]]
    root: str | None
    drawing: Drawing | None

    @property
    def is_active(self) -> bool:
        return self.job is not None and self.job.state in ACTIVE


@router.get("/jobs/{job_id}")
async def job(request: Request, plane: PlaneDep, visitor: VisitorDep, job_id: str) -> Response:
    shown = await plane.reads.call(lambda store: _read(store, visitor.identity, job_id))
    lines = [] if shown.job is None else await plane.reads.call(lambda store: store.last_logs(shown.id, MOST_LINES))
    follow = _follow(lines, shown.is_active)
    return await page(request, "job", visitor, part="job_now.html", shown=shown, **follow)


@router.get("/jobs/{job_id}/log")
async def log(
    plane: PlaneDep, visitor: VisitorDep, job_id: str, have: Annotated[str, Query()] = "", over: str = ""
) -> Response:
    """The end of what it said; nothing, where the page has that already."""

    def read(store: Store) -> tuple[list[LogLine], bool]:
        known = check_job(store, visitor.identity, job_id)
        return store.last_logs(known, MOST_LINES), store.job(known).state in ACTIVE

    lines, is_active = await plane.reads.call(read)
    if _place(lines) == have and is_active == (over != "yes"):
        return Response(status_code=204, headers=HEADERS)
    return await fragment("job_log.html", visitor, id=job_id, **_follow(lines, is_active))


@router.post("/jobs/{job_id}/replay")
async def replay(plane: PlaneDep, visitor: WriterDep, job_id: str) -> Response:
    def again(store: Store) -> str:
        known = check_job(store, visitor.identity, job_id)
        with without_names(visitor.identity):
            return check_stand_in(store, visitor.identity, store.replay(known)).id

    return done("Replayed", f"as the new job {await plane.writes.call(again)}")


@router.post("/jobs/{job_id}/{verb}")
async def operate(plane: PlaneDep, visitor: WriterDep, job_id: str, verb: str) -> Response:
    if verb not in OPERATIONS:
        raise NotFound(f"a job can be {', '.join(OPERATIONS)} or replay, and nothing else")
    act = operating.cancel if verb == "cancel" else operating.requeue
    await plane.writes.call(lambda store: act(store, check_job(store, visitor.identity, job_id)))
    return done(OPERATIONS[verb])


def _follow(lines: list[LogLine], is_active: bool) -> dict[str, Any]:
    shown = _fitting(lines)
    is_cut = len(lines) == MOST_LINES or len(shown) < len(lines)
    return {"lines": shown, "have": _place(lines), "is_active": is_active, "is_cut": is_cut}


def _fitting(lines: list[LogLine]) -> list[LogLine]:
    """The last of them: a line may be long, and a page must not be."""
    room = MOST_LINE_CHARACTERS
    for number, line in enumerate(reversed(lines)):
        room -= min(len(line.message), LONGEST_LINE)
        if room < 0:
            return lines[len(lines) - number :]
    return lines


def _place(lines: list[LogLine]) -> str:
    return f"{lines[-1].attempt}.{lines[-1].number}" if lines else ""


def _read(store: Store, identity: Identity, job_id: str) -> Shown:
    known = check_history(store, identity, job_id)
    found = _found(store, identity, known)
    history = store.history(known, 0 if found is None else max(0, found.seq - MOST_EVENTS), MOST_EVENTS)
    if found is None and not history.items:
        raise no_job(known)
    attempts, refusals = attempts_in(history.items), store.refusals(known)
    now = store.feed(None, 1).now
    timeline = lay_out(history.items, attempts, refusals, now, MOST_DRAWN)
    return Shown(
        id=known,
        now=now,
        job=found,
        events=history.items[-MOST_LISTED:],
        attempts=attempts[-MOST_ATTEMPTS:],
        refusals=refusals[:MOST_LISTED],
        artifacts=store.artifacts(known),
        replays=[] if found is None else _replays(store, identity, found),
        root=None if found is None else root_of(store, found, may_see_original(identity)),
        drawing=None if timeline is None else draw(timeline, now),
    )


def _found(store: Store, identity: Identity, job_id: str) -> Job | None:
    try:
        return lineage_seen(store, identity, [store.job(job_id)])[0]
    except NotFound:
        return None


def _replays(store: Store, identity: Identity, original: Job) -> list[dict[str, Any]]:
    found = [replay for replay in store.replays(original.id) if identity.may_use(replay.queue)]
    return [{"job": replay, "said": _compared(store, original, replay)} for replay in reversed(found[-MOST_REPLAYS:])]


def _compared(store: Store, original: Job, replay: Job) -> str:
    if original.state is not State.SUCCEEDED or replay.state is not State.SUCCEEDED:
        return ""
    return {True: "the same result", False: "another result", None: "not comparable"}[
        compare_jobs(store, original, replay).equal
    ]
