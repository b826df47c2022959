"""The tree of commands. One file a command; here they get their names.

A command's file is imported when the command is named, all of them only for the help: most commands take less time
than it would to import the others.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from holdfast.cli.given import LightCommand, LightGroup
from holdfast.cli.session import Json, Session, begin

Commands = Mapping[str, "str | Group"]


class Group(NamedTuple):
    """Commands below a name. `alone` runs when none of them is named, else the help is printed."""

    text: str
    commands: Commands
    alone: str | None = None


COMMANDS: Commands = {
    "enqueue": "enqueue:enqueue",
    "hash": "hash:hash_spec",
    "worker": "worker:worker",
    "up": "worker:up",
    "serve": "serve:serve",
    "workers": "workers:workers",
    "top": "top:top",
    "stuck": "stuck:stuck",
    "verify": "verify:verify",
    "doctor": "doctor:doctor",
    "bench": "bench:bench",
    "torture": "torture:torture",
    "demo": "demo:demo",
    "version": "version:version",
    "jobs": Group(
        "Look at jobs; cancel, requeue, replay and compare them.",
        {
            "list": "jobs_list:list_jobs",
            "show": "jobs_show:show",
            "logs": "jobs_logs:logs",
            "artifacts": "jobs_artifacts:artifacts",
            "result": "jobs_artifacts:result",
            "cancel": "jobs_operate:cancel",
            "requeue": "jobs_operate:requeue",
            "replay": "jobs_replay:replay",
            "compare": "jobs_replay:compare",
        },
    ),
    "queues": Group(
        "The queues and what waits in them; pause, resume and limit them.",
        {"pause": "queues:pause", "resume": "queues:resume", "limit": "queues:limit"},
        alone="queues:list_queues",
    ),
    "sources": Group(
        "The outside systems that jobs touch: how they are, and their limits.",
        {
            "set": "sources:set_source",
            "pause": "sources:pause",
            "resume": "sources:resume",
            "events": "sources:events",
            "clear-cache": "sources:clear_cache",
        },
        alone="sources:list_sources",
    ),
    "records": Group(
        "What jobs found and kept: look at it, delete it.",
        {"show": "records:show", "delete": "records:delete"},
        alone="records:list_records",
    ),
    "schedules": Group(
        "What runs by itself; look at it, change it, pause it.",
        {
            "show": "schedules:show",
            "add": "schedules:add",
            "set": "schedules:set_schedule",
            "pause": "schedules:pause",
            "resume": "schedules:resume",
            "reset": "schedules:reset",
            "remove": "schedules:remove",
            "run": "schedules:run",
        },
        alone="schedules:list_schedules",
    ),
    "dead": Group(
        "The failed jobs: look at them, requeue them, delete them.",
        {"list": "dead:list_dead", "requeue": "dead:requeue", "purge": "dead:purge"},
    ),
    "retention": Group(
        "How long finished jobs and their histories are kept.",
        {"set": "retention:set_rule", "unset": "retention:unset_rule", "run": "retention:run"},
        alone="retention:show",
    ),
    "tokens": Group(
        "Who may speak to a control plane: make, look at, rotate and revoke tokens.",
        {
            "create": "tokens:create",
            "list": "tokens:list_tokens",
            "revoke": "tokens:revoke",
            "rotate": "tokens:rotate",
            "refusals": "tokens:refusals",
        },
    ),
    "db": Group("The database's tables.", {"upgrade": "db:upgrade", "current": "db:current"}),
}


ABOUT = "A durable job engine: the database is the truth, a lease is the right to run, every step is on the record."


def holdfast(
    context: typer.Context,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The store; else DATABASE_URL; else holdfast.db beside pyproject.toml."),
    ] = None,
    json: Json = False,
) -> None:
    context.obj = Session(database, json)


def tree() -> LightGroup:
    return _group("holdfast", Group(ABOUT, COMMANDS), holdfast)


def _group(name: str, group: Group, callback: Callable[..., None]) -> LightGroup:
    app = typer.Typer(cls=LightGroup, help=group.text, no_args_is_help=group.alone is None, add_completion=False)
    app.callback(invoke_without_command=group.alone is not None)(callback)
    found = get_command(app)
    assert isinstance(found, LightGroup)
    found.name = name
    found.commands = _WhenNamed(group.commands)
    return found


class _WhenNamed(UserDict[str, Any]):
    """Each command is made when it is looked at."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, str | Group):
            found = self.data[name] = _made(name, found)
        return found


def _made(name: str, branch: str | Group) -> Any:
    if isinstance(branch, Group):
        return _group(name, branch, _options if branch.alone is None else _function(branch.alone))
    app = typer.Typer(add_completion=False)
    app.command(name, cls=LightCommand)(_function(branch))
    return get_command(app)


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(":")
    found: Callable[..., None] = getattr(import_module(f"holdfast.cli.{module}"), name)
    return found


def _options(context: typer.Context, json: Json = False) -> None:
    context.obj = begin(context, json)
