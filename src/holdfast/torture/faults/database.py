"""Faults of the database: stopped at once, backends terminated, snapshots and locks held, a full disk."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from sqlalchemy import make_url

from holdfast.torture.crew import WORKERS
from holdfast.torture.faults.kind import Struck
from holdfast.torture.ground import Ground
from holdfast.torture.stage import Stage

TERMINATE = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND random() < %s"""
SIT_ON = """
    SELECT id FROM holdfast_jobs WHERE state IN ('running', 'pending', 'retryable')
    ORDER BY random() LIMIT 20 FOR UPDATE"""


def postgres_stopped(stage: Stage, chance: random.Random) -> Struck:
    """`pg_ctl stop -m immediate`, away for a moment or for longer than a lease, and started again."""
    server = stage.ground.server
    assert server is not None
    seconds = chance.choice((0.0, 0.5, 1.0, 2.5)) * stage.lease_seconds
    with stage.server:
        server.stop("immediate")
        stage.rest(seconds)
        server.start()
    return Struck("Postgres", f"away for {seconds:.1f} s", _all_doors(stage))


def backends_terminated(stage: Stage, chance: random.Random) -> Struck:
    share, hits = chance.choice((0.3, 1.0)), 0
    for _ in range(chance.randint(1, 4)):
        with suppress(psycopg.Error), _connected(stage.ground) as connection:
            found = connection.execute(TERMINATE, (share,)).fetchone()
            hits += found[0] if found else 0
        stage.rest(chance.uniform(0.1, 0.5))
    return Struck("backends", f"{hits} of them", _all_doors(stage), hits=hits)


def snapshot_held(stage: Stage, chance: random.Random) -> Struck:
    """A reader who does not let go: nothing that is dead can be cleared away meanwhile."""
    seconds = chance.uniform(2.0, 5.0) * stage.lease_seconds
    if stage.ground.is_postgres:
        with suppress(psycopg.Error), _connected(stage.ground) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM holdfast_queues")
            stage.rest(seconds)
            connection.rollback()
    else:
        with suppress(sqlite3.Error), _file(stage.ground) as file:
            file.execute("BEGIN")
            file.execute("SELECT count(*) FROM holdfast_queues").fetchone()
            stage.rest(seconds)
            file.rollback()
    return Struck("the database", f"{seconds:.1f} s", _all_doors(stage))


def locks_held(stage: Stage, chance: random.Random) -> Struck:
    """On Postgres somebody sits on rows of jobs; on SQLite somebody has the one write lock that there is."""
    if stage.ground.is_postgres:
        seconds = chance.uniform(1.0, 3.0) * stage.lease_seconds
        with suppress(psycopg.Error), _connected(stage.ground) as connection:
            connection.execute("BEGIN")
            rows = len(connection.execute(SIT_ON).fetchall())
            stage.rest(seconds)
            connection.rollback()
            return Struck("rows of jobs", f"{rows} rows, {seconds:.1f} s", _all_doors(stage), hits=rows)
        return Struck("rows of jobs", hits=0)
    seconds = chance.uniform(0.3, 1.5) * stage.lease_seconds
    with suppress(sqlite3.Error), _file(stage.ground) as file:
        file.execute("BEGIN IMMEDIATE")
        stage.rest(seconds)
        file.rollback()
        return Struck("the write lock", f"{seconds:.1f} s", _all_doors(stage))
    return Struck("the write lock", hits=0)


def disk_full(stage: Stage, chance: random.Random) -> Struck:
    """Not a byte is left for a while. A server that gave up over it is started again once there is room."""
    disk = stage.ground.disk
    assert disk is not None
    seconds = chance.uniform(0.5, 2.0) * stage.lease_seconds
    with stage.server:
        filled = disk.fill()
        try:
            stage.rest(seconds)
        finally:
            disk.free()
            server = stage.ground.server
            if server is not None and not server.is_running:
                server.restart("immediate")
    return Struck("the disk", f"{filled >> 20} MiB, {seconds:.1f} s", _all_doors(stage))


def _all_doors(stage: Stage) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.door for member in stage.crew.of(*WORKERS)))


@contextmanager
def _connected(ground: Ground) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    conninfo = make_url(ground.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True, connect_timeout=5) as connection:
        yield connection


@contextmanager
def _file(ground: Ground) -> Iterator[sqlite3.Connection]:
    path = make_url(ground.url).database
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5.0)) as connection:
        yield connection
