"""The tree of commands. One file a command; here they get their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.cli import (
    bench,
    db,
    dead,
    demo,
    doctor,
    enqueue,
    hash,
    jobs_artifacts,
    jobs_list,
    jobs_logs,
    jobs_operate,
    jobs_replay,
    jobs_show,
    queues,
    records,
    retention,
    schedules,
    serve,
    sources,
    stuck,
    tokens,
    top,
    verify,
    version,
    worker,
    workers,
)
from holdfast.cli.session import Json, Session, begin

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def holdfast(
    context: typer.Context,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The store; else DATABASE_URL; else holdfast.db beside pyproject.toml."),
    ] = None,
    json: Json = False,
) -> None:
    """A durable job engine: the database is the truth, a lease is the right to run, every step is on the record."""
    context.obj = Session(database, json)


def _options(context: typer.Context, json: Json = False) -> None:
    context.obj = begin(context, json)


def _group(name: str, text: str, alone: Callable[..., None] | None = None) -> typer.Typer:
    """A group of commands; `alone` runs when none of them is named, else the help is printed."""
    group = typer.Typer(help=text, no_args_is_help=alone is None)
    group.callback(invoke_without_command=alone is not None)(alone or _options)
    app.add_typer(group, name=name)
    return group


app.command("enqueue")(enqueue.enqueue)
app.command("hash")(hash.hash_spec)
app.command("worker")(worker.worker)
app.command("up")(worker.up)
app.command("serve")(serve.serve)

_jobs = _group("jobs", "Look at jobs; cancel, requeue, replay and compare them.")
_jobs.command("list")(jobs_list.list_jobs)
_jobs.command("show")(jobs_show.show)
_jobs.command("logs")(jobs_logs.logs)
_jobs.command("artifacts")(jobs_artifacts.artifacts)
_jobs.command("result")(jobs_artifacts.result)
_jobs.command("cancel")(jobs_operate.cancel)
_jobs.command("requeue")(jobs_operate.requeue)
_jobs.command("replay")(jobs_replay.replay)
_jobs.command("compare")(jobs_replay.compare)

_queues = _group("queues", "The queues and what waits in them; pause, resume and limit them.", queues.list_queues)
_queues.command("pause")(queues.pause)
_queues.command("resume")(queues.resume)
_queues.command("limit")(queues.limit)

_sources = _group(
    "sources", "The outside systems that jobs touch: how they are, and their limits.", sources.list_sources
)
_sources.command("set")(sources.set_source)
_sources.command("pause")(sources.pause)
_sources.command("resume")(sources.resume)
_sources.command("events")(sources.events)
_sources.command("clear-cache")(sources.clear_cache)

_records = _group("records", "What jobs found and kept: look at it, delete it.", records.list_records)
_records.command("show")(records.show)
_records.command("delete")(records.delete)

_schedules = _group("schedules", "What runs by itself; look at it, change it, pause it.", schedules.list_schedules)
_schedules.command("show")(schedules.show)
_schedules.command("add")(schedules.add)
_schedules.command("set")(schedules.set_schedule)
_schedules.command("pause")(schedules.pause)
_schedules.command("resume")(schedules.resume)
_schedules.command("reset")(schedules.reset)
_schedules.command("remove")(schedules.remove)
_schedules.command("run")(schedules.run)

_dead = _group("dead", "The failed jobs: look at them, requeue them, delete them.")
_dead.command("list")(dead.list_dead)
_dead.command("requeue")(dead.requeue)
_dead.command("purge")(dead.purge)

_retention = _group("retention", "How long finished jobs and their histories are kept.", retention.show)
_retention.command("set")(retention.set_rule)
_retention.command("unset")(retention.unset_rule)
_retention.command("run")(retention.run)

_tokens = _group("tokens", "Who may speak to a control plane: make, look at, rotate and revoke tokens.")
_tokens.command("create")(tokens.create)
_tokens.command("list")(tokens.list_tokens)
_tokens.command("revoke")(tokens.revoke)
_tokens.command("rotate")(tokens.rotate)
_tokens.command("refusals")(tokens.refusals)

app.command("workers")(workers.workers)
app.command("top")(top.top)
app.command("stuck")(stuck.stuck)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
app.command("bench")(bench.bench)

_db = _group("db", "The database's tables.")
_db.command("upgrade")(db.upgrade)
_db.command("current")(db.current)

app.command("demo")(demo.demo)
app.command("version")(version.version)
