"""Faults of the database: stopped at once, backends terminated, no writes, snapshots and locks held, a full disk, and
payloads that no worker can decode."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from holdfast.domain.job import MAX_BUDGET
from holdfast.stores.ids import new_ids
from holdfast.torture import tasks
from holdfast.torture.crew import WORKERS
from holdfast.torture.faults.kind import Struck
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Intended
from holdfast.torture.stage import Stage

SETTING_SECONDS, RETRY_SECONDS = 30.0, 0.2
TERMINATE = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND random() < %s"""
# A call that began this very moment would be cut, too.
TERMINATE_IDLE = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND state = 'idle' AND state_change < clock_timestamp() - interval '20 milliseconds'"""
READ_ONLY = "default_transaction_read_only"
# Each can be stored as JSON. Python decodes none of them.
UNDECODABLE_VALUES = ("9" * 5_000, "[" * 990 + "]" * 990, "1e999", '"\\ud800"')
INSERT_JOB = """
    INSERT INTO holdfast_jobs (id, task, queue, payload, lease_seconds, max_attempts, max_crashes)
    VALUES ({0}, {0}, {0}, {0}, {0}, {0}, {0})"""
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


def end_idle_sessions(stage: Stage) -> int:
    """End the sessions that have no statement under way; how many they were."""
    with suppress(psycopg.Error), _connected(stage.ground) as connection:
        found = connection.execute(TERMINATE_IDLE).fetchone()
        return found[0] if found else 0
    return 0


def writes_refused(stage: Stage, chance: random.Random) -> Struck:
    """As in a switchover: SQLSTATE 25006 for a while. A session that was opened meanwhile stays read-only for good.

    The setting of the server reaches the sessions that are open, and only on a server of our own; the setting of the
    database reaches new ones."""
    seconds = chance.uniform(0.5, 2.0) * stage.lease_seconds
    share = chance.choice((0.3, 1.0))
    with stage.server, suppress(psycopg.Error):
        try:
            _set_read_only(stage, "on")
            stage.rest(seconds / 2)
            with suppress(psycopg.Error), _connected(stage.ground) as connection:
                connection.execute(TERMINATE, (share,))
            stage.rest(seconds / 2)
        finally:
            _set_read_only(stage, None)
        return Struck("Postgres", f"no writes for {seconds:.1f} s", _all_doors(stage))
    return Struck("Postgres", hits=0)


def payloads_poisoned(stage: Stage, chance: random.Random) -> Struck:
    """Jobs of which the payload was inserted by hand, between all others."""
    ids = new_ids(chance.randint(1, 2 * len(UNDECODABLE_VALUES)))
    stage.notebook.write(Intended(ids, tasks.UNDECODABLE))
    limits = (stage.lease_seconds, MAX_BUDGET, MAX_BUDGET)
    rows = [
        (job_id, tasks.UNDECODABLE, tasks.MIXED, f'{{"number":{chance.choice(UNDECODABLE_VALUES)}}}', *limits)
        for job_id in ids
    ]
    hits = 0
    for row in rows:
        with suppress(psycopg.Error, sqlite3.Error):  # the database is away: another fault
            _insert_job(stage.ground, row)
            hits += 1
        stage.rest(chance.uniform(0.0, 0.1))
    return Struck("payloads", f"{hits} jobs", _all_doors(stage), hits=hits)


def _insert_job(ground: Ground, row: tuple[Any, ...]) -> None:
    if ground.is_postgres:
        with _connected(ground) as connection:
            connection.execute(INSERT_JOB.format("%s").encode(), row)
    else:
        with _file(ground) as file:
            file.execute(INSERT_JOB.format("?"), row)


def _set_read_only(stage: Stage, value: str | None) -> None:
    """Also while other faults end our session: nothing may stay read-only after the phase."""
    database = sql.Identifier(make_url(stage.ground.url).database or "")
    change = sql.SQL("RESET {}" if value is None else "SET {} = on").format(sql.Identifier(READ_ONLY))
    until = time.monotonic() + SETTING_SECONDS
    while True:
        try:
            with _connected(stage.ground, options=f"-c {READ_ONLY}=off") as connection:
                connection.execute(sql.SQL("ALTER DATABASE {} {}").format(database, change))
                if stage.ground.server is not None:
                    connection.execute(sql.SQL("ALTER SYSTEM {}").format(change))
                    connection.execute("SELECT pg_reload_conf()")
            return
        except psycopg.Error:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_SECONDS)


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
def _connected(ground: Ground, options: str = "") -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    conninfo = make_url(ground.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True, connect_timeout=5, options=options) as connection:
        yield connection


@contextmanager
def _file(ground: Ground) -> Iterator[sqlite3.Connection]:
    path = make_url(ground.url).database
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5.0)) as connection:
        yield connection
