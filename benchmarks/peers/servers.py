"""The run's two servers, and for each variant a fresh place in one of them.

Postgres is at full durability; Valkey keeps nothing on disk, which is the fastest that peers on Redis can be.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
from sqlalchemy import make_url

from benchmarks.databases import DURABLE
from benchmarks.peers.environments import CACHE
from benchmarks.peers.variants import Variant, redis_database
from holdfast.throwaway.postgres import PostgresServer
from holdfast.throwaway.valkey import ValkeyServer

CALM_PERCENT = 15.0  # of all cores
CALM_LOOKS = 10
LOOK_SECONDS = 0.3
WAL_FILES = 128  # of 16 MiB, which wait to be used again

# The name of the database in front of each line; then what a client asked for, whichever protocol it speaks.
_LOGGED = re.compile(rb"^(\w+) LOG: +(?:statement|execute [^:]*): +(.*)$", re.MULTILINE)
_FRAMES = (b"BEGIN", b"COMMIT", b"ROLLBACK")  # travel with the statements that they stand around


class Servers:
    def __init__(self, postgres: PostgresServer, valkey: ValkeyServer, scratch: Path) -> None:
        self.postgres = postgres
        self.valkey = valkey
        self._scratch = scratch  # on a disk, not in memory: SQLite files are in it

    def postgres_url(self, database: str) -> str:
        url = make_url(self.postgres.url(database)).set(drivername="postgresql")
        return url.render_as_string(hide_password=False)

    def redis_url(self, variant: Variant) -> str:
        number = redis_database(variant) if variant.store == "redis" else 0
        return f"redis://127.0.0.1:{self.valkey.port}/{number}"

    def folder(self, variant: Variant) -> Path:
        return self._scratch / variant.name

    def reset(self, variant: Variant) -> None:
        """An empty database, an empty folder."""
        shutil.rmtree(self.folder(variant), ignore_errors=True)
        self.folder(variant).mkdir(parents=True)
        if variant.store == "postgres":
            self.drop(variant.database)
            self.postgres.create_database(variant.database)
        elif variant.store == "redis":
            with redis.Redis.from_url(self.redis_url(variant)) as client:
                client.flushdb()

    def drop(self, database: str) -> None:
        self.postgres.drop_database(database)

    def settle(self, variant: Variant) -> None:
        """A clean start: statistics known, nothing left to flush, and the machine at rest for a moment, if it comes."""
        if variant.store == "postgres":
            with psycopg.connect(self.postgres_url(variant.database), autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")
        wait_for_calm()

    @contextmanager
    def counting(self, variant: Variant) -> Iterator[_Counter]:
        """Counts what a variant asks its server for: statements of Postgres, commands of Redis, nothing on SQLite."""
        if variant.store == "postgres":
            with self._all_logged():
                yield _PostgresCounter(self.postgres.log, variant.database)
        elif variant.store == "redis":
            with redis.Redis.from_url(self.redis_url(variant)) as client:
                yield _RedisCounter(client)
        else:
            yield _Counter()

    @contextmanager
    def _all_logged(self) -> Iterator[None]:
        self._log_statements("all")
        try:
            yield
        finally:
            self._log_statements("none")

    def _log_statements(self, which: str) -> None:
        with psycopg.connect(self.postgres_url("postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
            connection.execute("SELECT pg_reload_conf()")


class _Counter:
    def asked(self) -> int | None:
        return None


class _PostgresCounter(_Counter):
    def __init__(self, log: Path, database: str) -> None:
        self._log = log
        self._database = database.encode()
        self._offset = log.stat().st_size

    def asked(self) -> int:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            return statements(log.read(), self._database)


def statements(log: bytes, database: bytes) -> int:
    """How many statements of a database are in a part of the server's log, those that only frame others left out."""
    return sum(1 for where, what in _LOGGED.findall(log) if where == database and not what.upper().startswith(_FRAMES))


class _RedisCounter(_Counter):
    def __init__(self, client: Any) -> None:
        self._client = client
        self._own = 0
        self._start = self._total()

    def asked(self) -> int:
        return self._total() - self._start

    def _total(self) -> int:
        self._own += 1  # asking is a command itself
        return int(self._client.info("stats")["total_commands_processed"]) - self._own


def wait_for_calm() -> None:
    for _ in range(CALM_LOOKS):
        psutil.cpu_percent(None)
        time.sleep(LOOK_SECONDS)
        if psutil.cpu_percent(None) < CALM_PERCENT:
            return


def _sweep() -> None:
    """What runs left behind that were killed outright."""
    for folder in CACHE.glob("run-*"):
        if not psutil.pid_exists(int(folder.name.split("-")[1])):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running() -> Iterator[Servers]:
    settings = {**DURABLE, "log_line_prefix": "%d ", "min_wal_size": f"{16 * WAL_FILES}MB"}
    CACHE.mkdir(parents=True, exist_ok=True)
    _sweep()
    with (
        PostgresServer(settings) as postgres,
        ValkeyServer() as valkey,
        tempfile.TemporaryDirectory(prefix=f"run-{os.getpid()}-", dir=CACHE) as scratch,
    ):
        servers = Servers(postgres, valkey, Path(scratch))
        _age(servers)
        yield servers


def _age(servers: Servers) -> None:
    """A young server fills each new file of its write-ahead log with zeros before the first use, which a server of some
    age does no more. Whoever writes more would pay more for it, and those that are measured first."""
    with psycopg.connect(servers.postgres_url("postgres"), autocommit=True) as connection:
        for _ in range(WAL_FILES):
            connection.execute("SELECT pg_logical_emit_message(false, 'age', ''), pg_switch_wal()")
        connection.execute("CHECKPOINT")


def sqlite_version() -> str:
    return sqlite3.sqlite_version
