"""`holdfast bench`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.progress_shown import shown
from holdfast.cli.session import Json, Session, begin, explained, name_store
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.names import check_integer
from holdfast.settings import CONTROL_PLANES, Settings

if TYPE_CHECKING:
    from holdfast.bench.ground import Ground
    from holdfast.bench.report import Latency, Report

SECONDS = 40
TIMEOUT_SECONDS = 30.0  # for any single answer of the database
_INTERRUPTED = 130


def bench(
    context: typer.Context,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="The database; it may stand before `bench` as well.")
    ] = None,
    seconds: Annotated[int, typer.Option(metavar="N", help="About how long to measure, 1 to 600.")] = SECONDS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the jobs there, to be looked at.")] = False,
    json: Json = False,
) -> None:
    """Measure this database: how fast jobs are enqueued, claimed, run and picked up, and what bounds it.

    Everything happens in a queue of its own, which is removed at the end, after Ctrl-C too. Jobs of others are not
    touched; they may be slower while it runs.
    """
    if sys.platform == "win32":
        raise ConfigurationError("A worker is part of what is measured, and needs Linux or macOS.")
    session = begin(context, json)
    session = Session(database or session.database, session.json)
    settings = session.settings()
    check_integer(seconds, "--seconds", 1, 600)
    if settings.database_url.startswith(CONTROL_PLANES):
        raise ConfigurationError(
            f"A control plane ({settings.database_url}) is not a database, and that is what is measured. Run this where"
            " the database can be reached: holdfast --database postgresql://… bench"
        )
    report = _run(session, settings, float(seconds), keep)
    if report is None:
        raise typer.Exit(_INTERRUPTED)
    if session.json:
        output.document(report)
    else:
        _print(report)


def _run(session: Session, settings: Settings, seconds: float, keep: bool) -> Report | None:
    """None when somebody wanted it to end before."""
    from holdfast.bench.ground import Ground, forgotten, queue_name
    from holdfast.bench.running import measure
    from holdfast.bench.timing import Interrupted, Stop
    from holdfast.wiring.sql import open_store

    name_store(settings.database_url, named=not session.json)
    stop = Stop()
    with (
        explained(),
        stop.on_signals(),
        closing(
            open_store(settings.database_url, create=False, timeout_seconds=TIMEOUT_SECONDS, notify=settings.notify)
        ) as store,
    ):
        for name in forgotten(store):
            _clear(session, Ground(store, name))
        ground = Ground(store, queue_name())
        try:
            report = measure(ground, settings, seconds, stop, _telling(session))
        except Interrupted:
            output.remark(f"interrupted: {'its jobs stay' if keep else 'removing what was made'}")
            return None
        finally:
            if not keep:
                _clear(session, ground)
        if stop.is_set:
            output.remark("interrupted")
            return None
        return replace(report, kept_queue=ground.queue) if keep else report


def _telling(session: Session) -> Callable[[str], None]:
    """What is being measured, for a person who waits."""
    if session.json or not sys.stderr.isatty():
        return lambda _what: None
    return lambda what: output.remark(f"measuring: {what}")


def _clear(session: Session, ground: Ground) -> None:
    with shown("removing the jobs", silent=session.json) as steps:
        is_clear = ground.clear(steps.told)
    if not is_clear:
        output.remark(
            f"Some jobs of queue {ground.queue} are still there: a worker that was killed holds them, or somebody's"
            " transaction has them locked. They run nowhere; the next `holdfast bench` after an hour removes them."
        )


def _print(report: Report) -> None:
    output.table(("", "jobs/s", ""), list(_rates(report)))
    output.line("")
    output.table(("", "p50 ms", "p99 ms", ""), list(_latencies(report)))
    output.line("")
    for sentence in report.verdict.words:
        output.line(sentence)
    if report.kept_queue is not None:
        output.line(f"The jobs are still there, in queue {report.kept_queue}.")


def _rates(report: Report) -> Iterator[tuple[str, str, str]]:
    yield "enqueue, one a call", _number(report.enqueue.single_per_second), ""
    yield "enqueue, a thousand a call", _number(report.enqueue.bulk_per_second), ""
    for loop in report.claim_settle:
        computing = f"{loop.cpu_share:.0%} of it computing in this process"
        yield f"claim and settle, {loop.batch} a call", _number(loop.per_second), computing
    worker = report.worker
    yield f"a worker with {worker.processes} runners", _number(worker.per_second), f"{worker.jobs:,} jobs"


def _latencies(report: Report) -> Iterator[tuple[str, str, str, str]]:
    yield "round trip", *_quantiles(report.round_trip_ms), "the smallest question"
    waiting = f"the smallest change; {report.flush_ms:.2f} ms of a commit is waiting for the disk"
    yield "commit", *_quantiles(report.commit_ms), waiting
    yield "pickup", *_quantiles(report.pickup_ms), "from enqueue to the first line of the task"


def _quantiles(found: Latency) -> tuple[str, str]:
    return f"{found.p50:.2f}", f"{found.p99:.2f}"


def _number(rate: float) -> str:
    return f"{rate:,.0f}"
