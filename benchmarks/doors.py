"""How fast no-op jobs are drained through each of the doors, in one run.

The workers are real, and everything is paid for, as in `worker.py`. "One by one" is any program that speaks the
contract: it claims one job, completes it and claims the next, over as many connections as the row says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.databases import Databases, settle_down
from benchmarks.tables import markdown
from benchmarks.worker import APP, measured
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.process import free_port
from holdfast.throwaway.valkey import ValkeyServer
from tests.servers.waiting import wait_until

JOBS = 20_000
ONE_BY_ONE = 2_000


class Ground:
    """One store, one folder, and the processes of one measurement."""

    def __init__(self, store: SqlStore, folder: str) -> None:
        self.url = store.database.engine.url.render_as_string(hide_password=False)
        self.folder = folder

    def holdfast(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """A command on the store; with an empty DATABASE_URL it does not know the store."""
        known = {"DATABASE_URL": self.url, **environment}
        variables = {**os.environ, **{name: value for name, value in known.items() if value}}
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.Popen(command, cwd=self.folder, env=variables, stdout=subprocess.PIPE)

    def drain(self, *flags: str, **environment: str) -> None:
        words = ["worker", "tasks:app", "--drain", "--processes", "2", "--log-level", "error", *flags]
        with self.holdfast(*words, **environment) as worker:
            assert worker.wait() == 0

    def token(self, scope: str) -> str:
        with self.holdfast("tokens", "create", scope, "--scope", scope, "--json") as created:
            found: dict[str, str] = json.loads(created.communicate()[0])
        return found["token"]

    @contextmanager
    def control_plane(self) -> Iterator[str]:
        port = free_port()
        with self.holdfast("serve", "--port", str(port), "--log-level", "error", HOLDFAST_RATE_PER_SECOND="0") as plane:
            try:
                wait_until(lambda: _answers(port), what="the control plane answers", timeout=30)
                yield f"http://127.0.0.1:{port}"
            finally:
                plane.terminate()
                plane.wait()


def _answers(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _by_database(ground: Ground) -> None:
    ground.drain()


def _by_http(ground: Ground) -> None:
    with ground.control_plane() as plane:
        ground.drain(DATABASE_URL="", HOLDFAST_CONTROL_PLANE=plane, HOLDFAST_TOKEN=ground.token("worker"))


def _one_by_one(ground: Ground, connections: int) -> None:
    with ground.control_plane() as plane:
        client = [sys.executable, "-m", "benchmarks.http_client", plane, str(connections)]
        subprocess.run(client, env={**os.environ, "HOLDFAST_TOKEN": ground.token("worker")}, check=True)


def _by_redis(ground: Ground) -> None:
    valkey = ValkeyServer()
    valkey.start()
    try:
        ground.drain(REDIS_URL=valkey.url)
    finally:
        valkey.close()


WAYS: dict[str, tuple[Callable[[Ground], None], int]] = {
    "database worker": (_by_database, JOBS),
    "HTTP worker (batches)": (_by_http, JOBS),
    "Redis Streams worker": (_by_redis, JOBS),
    "HTTP, one by one, 1 connection": (lambda ground: _one_by_one(ground, 1), ONE_BY_ONE),
    "HTTP, one by one, 16 connections": (lambda ground: _one_by_one(ground, 16), ONE_BY_ONE),
}


def run(handed: Databases, *, scale: float = 1.0) -> str:
    rows: list[list[str | float]] = [
        [name, *(_rate(handed, kind, drain, max(200, int(count * scale))) for kind in handed.kinds)]
        for name, (drain, count) in WAYS.items()
    ]
    return "Draining no-op jobs through each door, jobs/s\n\n" + markdown(["way", *handed.kinds], rows)


def _rate(handed: Databases, kind: str, drain: Callable[[Ground], None], count: int) -> float:
    with handed.store(kind) as store, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(APP)
        for start in range(0, count, 1_000):
            store.enqueue_many([NewJob(task="noop") for _ in range(min(1_000, count - start))])
        settle_down(store)
        drain(Ground(store, folder))
        return measured(store, count)
