"""`holdfast jobs replay ID` and `holdfast jobs compare ID [OTHER]`"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.jobs_artifacts import JobId, Where
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain.comparison import Comparison, check_tolerance
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.settings import Settings, artifacts_location
from holdfast.tasks.comparing import compare_jobs, original_of
from holdfast.tasks.options import positive_duration

if TYPE_CHECKING:
    from holdfast.ports import ArtifactStore
    from holdfast.stores.sql_store import SqlStore

INTERRUPTED = 130
FIRST_WAIT = 0.02
LONGEST_WAIT = 0.5

Tolerance = Annotated[
    float, typer.Option(metavar="1e-9", help="The relative difference up to which two numbers are the same.")
]


def replay(
    context: typer.Context,
    job_id: JobId,
    wait: Annotated[
        str | None, typer.Option(metavar="60s", help="Wait for its end, then compare; exit 0 only if it is the same.")
    ] = None,
    tolerance: Tolerance = 0.0,
    artifacts: Where = None,
    json: Json = False,
) -> None:
    """Run a job's task again with the same parameters and options, as a new job; print its id."""
    session = begin(context, json)
    settings = session.settings()
    seconds = None if wait is None else positive_duration(wait, "wait")
    check_tolerance(tolerance)
    with opened(settings) as store:
        answer = store.replay(job_id)
        if not session.json:
            output.line(answer.id)
            sys.stdout.flush()
        if seconds is None:
            if session.json:
                output.document({"id": answer.id, "created": answer.created, "state": answer.state})
            return
        again = _ended(store, answer.id, seconds)
        first = original_of(store, again)
        found = _compared(store, settings, first, again, tolerance, artifacts)
    if session.json:
        output.document({"id": again.id, "created": answer.created, "state": again.state, **_document(first, found)})
    else:
        _print(again, found)
    if not found.equal or again.state is not State.SUCCEEDED:
        raise typer.Exit(1)


def compare(
    context: typer.Context,
    job_id: JobId,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="By default the job that ID is a replay of.")
    ] = None,
    tolerance: Tolerance = 0.0,
    artifacts: Where = None,
    json: Json = False,
) -> None:
    """Did two jobs come to the same? Exit code 0 if they did, else 1, and where they differ."""
    session = begin(context, json)
    settings = session.settings()
    check_tolerance(tolerance)
    with opened(settings) as store:
        named = store.job(job_id)
        first, second = (original_of(store, named), named) if other is None else (named, store.job(other))
        found = _compared(store, settings, first, second, tolerance, artifacts)
    _answer(session, first, second, found)
    if not found.equal:
        raise typer.Exit(1)


def _answer(session: Session, first: Job, second: Job, found: Comparison) -> None:
    same_spec = first.spec_hash is not None and first.spec_hash == second.spec_hash
    if session.json:
        jobs = [{"id": job.id, "state": job.state, "spec_hash": job.spec_hash} for job in (first, second)]
        output.document({"first": jobs[0], "second": jobs[1], "same_spec": same_spec, **_verdict(found)})
        return
    output.facts([("first", f"{first.id}  {first.state}"), ("second", f"{second.id}  {second.state}")])
    if not same_spec:
        output.remark("They did not run the same spec: task, version or payload differ, or one has no spec hash.")
    _print(second, found)


def _ended(store: SqlStore, job_id: str, seconds: float) -> Job:
    """The job once it has ended, or as it is when the time is up."""
    deadline = time.monotonic() + seconds
    pause = FIRST_WAIT
    try:
        while True:
            job = store.job(job_id)
            left = deadline - time.monotonic()
            if job.state in TERMINAL or left <= 0:
                return job
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_WAIT)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _compared(
    store: SqlStore, settings: Settings, first: Job, second: Job, tolerance: float, artifacts: str | None
) -> Comparison:
    def files() -> ArtifactStore:
        from holdfast.wiring.sql import artifacts_root, open_artifacts

        named = settings.artifacts_url
        where = named if artifacts is None else artifacts_location(artifacts, "--artifacts", Path.cwd())
        return open_artifacts(artifacts_root(where, store.store_id()))

    return compare_jobs(store, first, second, files=files, tolerance=tolerance)


def _document(first: Job, found: Comparison) -> dict[str, Any]:
    return {"replay_of": first.id, "original_state": first.state, **_verdict(found)}


def _verdict(found: Comparison) -> dict[str, Any]:
    return {"equal": found.equal, "differences": list(found.differences), "more": found.more}


def _print(second: Job, found: Comparison) -> None:
    if found.equal:
        output.line("the same result" if second.state is State.SUCCEEDED else "the same failure", "green")
        return
    output.line("different" if found.equal is False else "cannot be told", "yellow")
    for line in found.differences:
        output.line(f"  {line}")
    if found.more:
        output.line(f"  … and {found.more:,} more")
