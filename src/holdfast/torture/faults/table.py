"""All kinds of faults, by name."""

from __future__ import annotations

from holdfast.domain.errors import ConfigurationError
from holdfast.torture.faults import clocks, database, messages, processes, ways
from holdfast.torture.faults.kind import Kind
from holdfast.torture.stage import Stage


def _always(_stage: Stage) -> str | None:
    return None


def _own_postgres(stage: Stage) -> str | None:
    if not stage.ground.is_postgres:
        return "there is no server: the database is a file"
    return None if stage.ground.server is not None else "the server is not ours to stop: use --postgres"


def _postgres(stage: Stage) -> str | None:
    return None if stage.ground.is_postgres else "there is no server: the database is a file"


def _redis(stage: Stage) -> str | None:
    return (
        None if stage.valkey is not None else "no Redis or Valkey server was found, or redis and rq are not installed"
    )


def _disk(stage: Stage) -> str | None:
    return None if stage.ground.disk is not None else stage.ground.no_disk


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("worker-killed", "SIGKILL to a worker's supervisor, at any door", processes.worker_killed, _always),
        Kind("runner-killed", "SIGKILL to a process that runs a job", processes.runner_killed, _always),
        Kind("worker-frozen", "SIGSTOP of a supervisor past its leases", processes.worker_frozen, _always),
        Kind("tree-frozen", "SIGSTOP of a worker with all its runners past its leases", processes.tree_frozen, _always),
        Kind("plane-killed", "SIGKILL to a control plane", processes.plane_killed, _always),
        Kind("plane-frozen", "SIGSTOP of a control plane", processes.plane_frozen, _always),
        Kind(
            "client-killed",
            "SIGKILL to a program that enqueues, or that speaks the contract",
            processes.client_killed,
            _always,
        ),
        Kind("term-storm", "SIGTERM to everybody, to some several times", processes.term_storm, _always),
        Kind(
            "rolling-deploy", "every worker and control plane replaced, one by one", processes.rolling_deploy, _always
        ),
        Kind(
            "postgres-stopped", "Postgres stopped at once and started again", database.postgres_stopped, _own_postgres
        ),
        Kind("backends-terminated", "pg_terminate_backend for some or all", database.backends_terminated, _postgres),
        Kind("snapshot-held", "a transaction that reads and does not end", database.snapshot_held, _always),
        Kind("locks-held", "somebody sits on rows of jobs, or on SQLite's write lock", database.locks_held, _always),
        Kind(
            "writes-refused",
            "Postgres read-only for a while, with sessions that stay so",
            database.writes_refused,
            _postgres,
        ),
        Kind(
            "payloads-poisoned",
            "jobs inserted with payloads that no worker can decode",
            database.payloads_poisoned,
            _always,
        ),
        Kind("disk-full", "not a byte left on the database's disk", database.disk_full, _disk),
        Kind("connections-reset", "all connections of a way reset, several times", ways.connections_reset, _always),
        Kind("black-hole", "a way that swallows everything, half of them for good", ways.black_hole, _always),
        Kind("slow-way", "every other packet late by 20 ms to 2 s", ways.slow, _always),
        Kind("refused", "new connections refused", ways.refused, _always),
        Kind("replies-cut", "answers cut after what was asked for had been done", ways.replies_cut, _always),
        Kind(
            "http-statuses",
            "500, 502, 503, 404, 403, 405, 413 or a page with 200 in place of a control plane's responses",
            ways.http_statuses,
            _always,
        ),
        Kind("idle-disconnects", "connections closed while they are idle", ways.idle_disconnects, _always),
        Kind("redis-flushed", "FLUSHALL", messages.redis_flushed, _redis),
        Kind("redis-frozen", "SIGSTOP of Redis", messages.redis_frozen, _redis),
        Kind("redis-restarted", "Redis stopped and started, empty", messages.redis_restarted, _redis),
        Kind("messages-doubled", "messages delivered again", messages.doubled, _redis),
        Kind("messages-shuffled", "messages delivered in another order", messages.shuffled, _redis),
        Kind("messages-dropped", "messages lost, groups destroyed", messages.dropped, _redis),
        Kind("clock-jumped", "the clock of a worker jumps by minutes, hours, a day", clocks.clock_jumped, _always),
    )
}


def choose(names: str | None) -> tuple[Kind, ...]:
    """From `a,b` or `all`; `none` for a run without any."""
    if names is None or names == "all":
        return tuple(KINDS.values())
    if names == "none":
        return ()
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in KINDS]
    if unknown or not wanted:
        raise ConfigurationError(
            f"--faults: {', '.join(unknown) or 'nothing'} is no kind of fault; there are {', '.join(KINDS)}; all and"
            " none name all and none of them"
        )
    return tuple(KINDS[name] for name in dict.fromkeys(wanted))
