"""The tree of commands. One file a command; here they get their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.cli import (
    db,
    demo,
    enqueue,
    jobs_list,
    jobs_logs,
    jobs_operate,
    jobs_show,
    queues,
    sources,
    stuck,
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
app.command("worker")(worker.worker)
app.command("up")(worker.up)

_jobs = _group("jobs", "Look at jobs; cancel and requeue them.")
_jobs.command("list")(jobs_list.list_jobs)
_jobs.command("show")(jobs_show.show)
_jobs.command("logs")(jobs_logs.logs)
_jobs.command("cancel")(jobs_operate.cancel)
_jobs.command("requeue")(jobs_operate.requeue)

_queues = _group("queues", "The queues and what waits in them; pause, resume and limit them.", queues.list_queues)
_queues.command("pause")(queues.pause)
_queues.command("resume")(queues.resume)
_queues.command("limit")(queues.limit)

_sources = _group("sources", "The outside systems that jobs touch, and their limits.", sources.list_sources)
_sources.command("set")(sources.set_source)

app.command("workers")(workers.workers)
app.command("stuck")(stuck.stuck)
app.command("verify")(verify.verify)

_db = _group("db", "The database's tables.")
_db.command("upgrade")(db.upgrade)
_db.command("current")(db.current)

app.command("demo")(demo.demo)
app.command("version")(version.version)
