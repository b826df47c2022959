"""What a peer's store shows: how many of its jobs are done.

Asked by the harness itself, not by the peer, on a connection that is open before the clock starts. A peer that takes a
job off its list before it runs it (huey) keeps no trace of it, and can only show that the list is empty.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import psycopg
import redis

from benchmarks.peers.servers import Servers
from benchmarks.peers.variants import Variant

POSTGRES = {
    "holdfast": "SELECT count(*) FROM holdfast_jobs WHERE state = 'succeeded'",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
    "pgqueuer": """SELECT CASE WHEN EXISTS (SELECT 1 FROM pgqueuer) THEN 0
        ELSE (SELECT count(*) FROM pgqueuer_log WHERE status = 'successful') END""",
    "chancy": "SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
    "dbos": "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'",
    "saq": "SELECT count(*) FROM saq_jobs WHERE status = 'complete'",
    "absurd": "SELECT count(*) FROM absurd.t_q WHERE state = 'completed'",
    "oban": "SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
    # awa prunes what is finished within seconds, row and result together: all are done when every row that is kept has
    # its result.
    "awa": """SELECT CASE WHEN finished.n = kept.n THEN 1000000000 ELSE finished.n END
        FROM (SELECT count(*) n FROM awa.terminal_jobs WHERE state = 'completed') finished,
             (SELECT count(*) n FROM awa.ready_entries) kept""",
}
SQLITE = {
    "holdfast": ("holdfast.db", "SELECT count(*) FROM holdfast_jobs WHERE state = 'succeeded'"),
    "flexiq": ("flexiq.db", "SELECT count(*) FROM archived_jobs WHERE status = 2"),
}
ALL_DONE = 1_000_000_000


class Probe(ABC):
    """How many jobs the store shows as done; `ALL_DONE` where it only shows that nothing is left."""

    @abstractmethod
    def done(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


def open_probe(servers: Servers, variant: Variant) -> Probe:
    if variant.store == "postgres":
        return _PostgresProbe(servers.postgres_url(variant.database), POSTGRES[variant.peer])
    if variant.store == "redis":
        return _RedisProbe(servers.redis_url(variant), variant.peer)
    if variant.peer == "huey":
        return _EmptyTable(servers.folder(variant) / "huey.db", "SELECT count(*) FROM task")
    name, query = SQLITE[variant.peer]
    return _SqliteProbe(servers.folder(variant) / name, query)


class _PostgresProbe(Probe):
    def __init__(self, url: str, query: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._query = query

    def done(self) -> int:
        row = self._connection.execute(self._query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


class _SqliteProbe(Probe):
    def __init__(self, path: Path, query: str) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        self._query = query

    def done(self) -> int:
        return int(self._connection.execute(self._query).fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class _EmptyTable(_SqliteProbe):
    def done(self) -> int:
        return ALL_DONE if super().done() == 0 else 0


class _RedisProbe(Probe):
    def __init__(self, url: str, peer: str) -> None:
        self._client: Any = redis.Redis.from_url(url)
        self._peer = peer

    def done(self) -> int:
        if self._peer == "rq":
            return int(self._client.zcard("rq:finished:default"))
        return ALL_DONE if self._left() == 0 else 0

    def _left(self) -> int:
        client = self._client
        if self._peer == "saq":
            return int(client.llen("saq:default:queued") + client.zcard("saq:default:incomplete"))
        if self._peer == "dramatiq":
            return int(client.llen("dramatiq:default") + client.hlen("dramatiq:default.msgs"))
        if self._peer == "celery":
            return int(client.llen("celery") + client.hlen("unacked"))
        if self._peer == "huey":
            return int(client.llen("huey.redis.bench"))
        if self._peer == "taskiq":
            # What no consumer has read, and what was read and not acknowledged.
            [group] = client.xinfo_groups("taskiq")
            return int(group["pending"]) + int(group["lag"] or 0)
        raise KeyError(self._peer)

    def close(self) -> None:
        self._client.close()
