"""`holdfast worker MODULE:APP` and `holdfast up MODULE:APP`"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.logging import Format, LogFormat, LogLevel, make_logger
from holdfast.cli.session import Json, Session, begin
from holdfast.domain import durations
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.names import check_integer, check_name
from holdfast.settings import CONTROL_PLANES, Settings, artifacts_location, redis_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.beside import Beside
    from holdfast.domain.events import Events
    from holdfast.observe.board import Board
    from holdfast.serve.options import ServeSettings
    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.start import Worker

AppName = Annotated[
    str | None, typer.Argument(metavar="MODULE:APP", help="Where the App is; else `app` in [tool.holdfast].")
]
Queues = Annotated[str | None, typer.Option(metavar="a,b", help="Only these, in this order; else all of them.")]
Processes = Annotated[int | None, typer.Option(metavar="N", help="Runner processes; else one for each core.")]
Slots = Annotated[int, typer.Option(metavar="M", help="Jobs at once in each of them; 1 gives a job its own process.")]
AsyncSlots = Annotated[int, typer.Option(metavar="M", help="Coroutines at once, in a process of their own.")]
Grace = Annotated[
    str | None, typer.Option(metavar="30s", help="How long jobs may go on after a stop signal, or after a cancel.")
]
Heartbeat = Annotated[str | None, typer.Option(metavar="20s", help="How often leases are renewed.")]
RecycleJobs = Annotated[int | None, typer.Option(metavar="N", help="Replace a runner after so many jobs.")]
RecycleMemory = Annotated[str | None, typer.Option(metavar="300MB", help="Replace a runner that has grown so large.")]
MaxMemory = Annotated[str | None, typer.Option(metavar="512MB", help="Kill a runner that uses more.")]
Notify = Annotated[bool, typer.Option("--notify/--no-notify", help="Listen for new jobs (Postgres); else only poll.")]
Health = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics, say at 127.0.0.1:9100."),
]
Artifacts = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where files of jobs go: a folder or s3://…; else HOLDFAST_ARTIFACTS."),
]
Redis = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Take jobs through the streams of this Redis or Valkey; else REDIS_URL."),
]
ControlPlane = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Work over HTTP, without a database; else HOLDFAST_CONTROL_PLANE."),
]
Token = Annotated[
    str | None,
    typer.Option(metavar="T", help="For the control plane; better HOLDFAST_TOKEN, which `ps` does not show."),
]


def worker(
    context: typer.Context,
    app: AppName = None,
    queues: Queues = None,
    processes: Processes = None,
    slots: Slots = 1,
    async_slots: AsyncSlots = 64,
    drain: Annotated[
        bool, typer.Option("--drain", help="Exit once nothing is due and nothing of its own runs.")
    ] = False,
    grace: Grace = None,
    heartbeat: Heartbeat = None,
    recycle_jobs: RecycleJobs = None,
    recycle_memory: RecycleMemory = None,
    max_memory: MaxMemory = None,
    notify: Notify = True,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Exit if the store is away at start.")] = False,
    redis: Redis = None,
    control_plane: ControlPlane = None,
    token: Token = None,
    health: Health = None,
    artifacts: Artifacts = None,
    log_format: LogFormat = None,
    log_level: LogLevel = "info",
    json: Json = False,
) -> None:
    """Run jobs. The supervisor claims, heartbeats and reports; user code runs in processes of its own."""
    given = Given(
        app,
        queues,
        processes,
        slots,
        async_slots,
        grace,
        heartbeat,
        recycle_jobs,
        recycle_memory,
        max_memory,
        notify,
        artifacts,
        Over(control_plane, token),
        redis,
    )
    shown = Shown(health, log_format, log_level)
    run(begin(context, json), given, shown, drain=drain, fail_fast=fail_fast)


def up(
    context: typer.Context,
    app: AppName = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart the runners when a .py file changes.")] = False,
    queues: Queues = None,
    processes: Processes = None,
    slots: Slots = 1,
    async_slots: AsyncSlots = 64,
    grace: Grace = None,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="With a control plane on the loopback.")] = True,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="Of the control plane; else 8787, or any where that is taken.")
    ] = None,
    health: Health = None,
    artifacts: Artifacts = None,
    log_format: LogFormat = None,
    log_level: LogLevel = "info",
    json: Json = False,
) -> None:
    """A control plane, a worker and the periodic duties in one command, for development and small installations."""
    given = Given(app, queues, processes, slots, async_slots, grace, artifacts=artifacts)
    shown = Shown(health, log_format, log_level, Served(port) if serve else None)
    run(begin(context, json), given, shown, reload=reload)


@dataclass(frozen=True, slots=True)
class Over:
    """Where a worker may find a control plane in place of a database."""

    control_plane: str | None = None
    token: str | None = field(default=None, repr=False)

    def settings(self, session: Session) -> Settings:
        if self.control_plane is not None and session.database is not None:
            raise ConfigurationError("--control-plane and --database are two stores for one worker: give one of them")
        return session.settings(control_plane=self.control_plane, token=self.token)

    def found(self, settings: Settings, session: Session) -> str | None:
        """A database that was named as a flag counts before a control plane of the environment."""
        if session.database is None and settings.control_plane is not None:
            return settings.control_plane
        return settings.database_url if settings.database_url.startswith(CONTROL_PLANES) else None


@dataclass(frozen=True, slots=True)
class Given:
    """The flags, as they were typed."""

    app: str | None
    queues: str | None
    processes: int | None
    slots: int
    async_slots: int
    grace: str | None
    heartbeat: str | None = None
    recycle_jobs: int | None = None
    recycle_memory: str | None = None
    max_memory: str | None = None
    notify: bool = True
    artifacts: str | None = None
    over: Over | None = None
    redis: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Served:
    """A control plane beside the worker; without a port of its own choice it takes what is free."""

    port: int | None


@dataclass(frozen=True, slots=True)
class Shown:
    health: str | None
    log_format: Format | None
    log_level: str
    served: Served | None = None


def run(
    session: Session,
    given: Given,
    shown: Shown,
    *,
    drain: bool = False,
    fail_fast: bool = False,
    reload: bool = False,
) -> None:
    if sys.platform == "win32":
        raise ConfigurationError("A worker needs Linux or macOS; on Windows Holdfast can enqueue and read.")
    from holdfast.domain.events import Events
    from holdfast.observe.logs import LogSubscriber, standard_logging
    from holdfast.tasks.tracing import FLUSH_SECONDS, flush, set_up
    from holdfast.worker.start import Worker

    settings = session.settings() if given.over is None else given.over.settings(session)
    options = _options(settings, session, given, drain=drain, fail_fast=fail_fast, reload=reload)
    logger = make_logger(session, shown.log_format, shown.log_level)
    log = LogSubscriber(logger)
    events = Events()
    events.subscribe(log, never=log.never)
    set_up("holdfast-worker" if shown.served is None else "holdfast-up", logger.warning)
    the_worker = Worker(options, events, lambda line: logger.info(line))
    board = None
    if shown.health is not None or shown.served is not None:  # else nobody would ever look at it
        board = _board(the_worker, events)
    if the_worker.is_traced:
        log.trace_of = the_worker.trace_id
    beside = None if shown.served is None else _beside(settings, shown.served, the_worker, events, logger.info, board)
    server = None
    if shown.health is not None and board is not None:
        from holdfast.observe.health import HealthServer

        host, port = _address(shown.health)
        server = HealthServer(host, port, board.registry, the_worker.health)
    try:
        with standard_logging(logger):
            code = the_worker.run()
    finally:
        if beside is not None:
            beside.close()
        if server is not None:
            server.close()
        flush(FLUSH_SECONDS)
    raise typer.Exit(code)


def _board(the_worker: Worker, events: Events) -> Board:
    from importlib.metadata import version

    from holdfast.observe.board import Board
    from holdfast.observe.metrics import MetricsSubscriber

    board = Board(version("holdfast"))
    events.subscribe(MetricsSubscriber(board.registry))
    board.pools.add("worker", the_worker.pools())
    return board


def _beside(
    settings: Settings,
    served: Served,
    the_worker: Worker,
    events: Events,
    told: Callable[[str], None],
    board: Board | None,
) -> Beside:
    from holdfast.cli.beside import Beside, take_port
    from holdfast.cli.serve import HOST, serve_settings
    from holdfast.domain.events import WorkerMoved

    listener = take_port(None if served.port is None else check_integer(served.port, "--port", 0, 65_535))

    def chosen() -> ServeSettings:
        # The worker does the periodic duties.
        return serve_settings(settings, the_worker.database_url, HOST, 0, duties=False)

    beside = Beside(listener, chosen, events, told, board)
    events.subscribe(beside, only=(WorkerMoved,))
    return beside


def _options(
    settings: Settings, session: Session, given: Given, *, drain: bool, fail_fast: bool, reload: bool
) -> WorkerOptions:
    from holdfast.domain.timing import choose
    from holdfast.wiring.redis import stream_options
    from holdfast.worker.identity import worker_id
    from holdfast.worker.options import WorkerOptions

    app = given.app or settings.app
    if app is None:
        raise ConfigurationError(
            'Name the app: holdfast worker MODULE:APP, or set app = "MODULE:APP" in [tool.holdfast] of pyproject.toml.'
        )
    control_plane = None if given.over is None else given.over.found(settings, session)
    if control_plane is not None:
        _check_token(settings.token)
    heartbeat = settings.heartbeat_seconds if given.heartbeat is None else _seconds(given.heartbeat, "--heartbeat")
    cores = os.cpu_count() or 1
    return WorkerOptions(
        app=check_name(app, "MODULE:APP"),
        database_url=settings.database_url,
        database_flag=session.database,
        control_plane=control_plane,
        token=settings.token,
        artifacts_url=settings.artifacts_url,
        artifacts_flag=_artifacts(given.artifacts),
        worker_id=worker_id(settings.worker_id),
        queues=_names(given.queues),
        processes=check_integer(cores if given.processes is None else given.processes, "--processes", 1, 1_000),
        slots=check_integer(given.slots, "--slots", 1, 1_000),
        async_slots=check_integer(given.async_slots, "--async-slots", 1, 10_000),
        drain=drain,
        fail_fast=fail_fast,
        reload=reload,
        notify=given.notify and settings.notify,
        listen_url=settings.listen_url,
        timing=choose(settings.lease_seconds, heartbeat),
        poll_seconds=settings.poll_interval,
        cache_url=settings.cache_url,
        cache_enabled=settings.cache_enabled,
        cache_ttl_seconds=settings.cache_ttl_seconds,
        upkeep_seconds=settings.upkeep_seconds,
        redis=stream_options(settings, _redis(given.redis)),
        rq_url=settings.rq_url,
        rq_serializer=settings.rq_serializer,
        grace_seconds=settings.grace_seconds if given.grace is None else _seconds(given.grace, "--grace", low=0.0),
        recycle_jobs=None
        if given.recycle_jobs is None
        else check_integer(given.recycle_jobs, "--recycle-jobs", 1, 10**9),
        recycle_memory=_bytes(given.recycle_memory, "--recycle-memory"),
        max_memory=_bytes(given.max_memory, "--max-memory"),
    )


def _check_token(token: str | None) -> None:
    """Before anything is started: later, a token that is missing looks like a control plane that is away."""
    from holdfast.remote.secret import Secret

    Secret(token)


def _redis(given: str | None) -> str | None:
    return None if given is None else redis_location(given, "--redis")


def _artifacts(given: str | None) -> str | None:
    return None if given is None else artifacts_location(given, "--artifacts", Path.cwd())


def _names(given: str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(check_name(name.strip(), "--queues") for name in given.split(","))


def _seconds(given: str, flag: str, low: float | None = None) -> float:
    found = durations.seconds(given, flag)
    if found < 0 or (low is None and found == 0):
        raise InvalidInput(flag, f"must be more than zero, got {given}")
    return found


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _bytes(given: str | None, flag: str) -> int | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", given.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidInput(flag, f"must be a size such as 512MB or 2GB, got {given!r}")
    return int(found[1]) * _UNITS[found[2]]


def _address(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput("--health", f"must be HOST:PORT or a port alone, got {given!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
