"""What both walks need: a queue of their own, two real workers in it, and SQL to see what happened."""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from tasks import app

# For the jobs that are stored here and the workers that are started here: who dies is missed within seconds.
os.environ["LEASE_SECONDS"] = "2"

HERE = Path(__file__).parent
WORKERS = ("ann", "bob")
PATIENCE_SECONDS = 60.0


class Stage:
    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue
        self._engine = create_engine(url)
        self.pids: dict[str, int] = {}

    def sql(self, statement: str, **given: str) -> list[tuple[Any, ...]]:
        """As anybody would ask, beside the engine; `:queue` is this walk's queue."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), {"queue": self.queue, **given})]

    def holder(self, job_id: str) -> str:
        """Which of the two holds the job's lease, as soon as one does."""
        self.wait(lambda: app.store.job(job_id).lease_owner is not None, "the job is claimed")
        owner = str(app.store.job(job_id).lease_owner)
        return next(name for name in WORKERS if owner.startswith(name))

    def freeze(self, name: str) -> None:
        """Between two of its transactions: an SQLite file has one writer at a time, and would be frozen with it."""
        os.kill(self.pids[name], signal.SIGSTOP)
        while not self._writable():
            os.kill(self.pids[name], signal.SIGCONT)
            time.sleep(0.05)
            os.kill(self.pids[name], signal.SIGSTOP)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"This takes too long: {what}. What the workers said is in {HERE / 'workers.log'}.")
            time.sleep(0.05)

    @contextmanager
    def workers(self, *flags: str) -> Iterator[None]:
        """Two `holdfast worker` processes, stopped by their pids when the block is left."""
        started: list[subprocess.Popen[bytes]] = []
        try:
            with (HERE / "workers.log").open("wb") as log:
                for name in WORKERS:
                    started.append(self._start(name, flags, log.fileno()))
            self.pids = {name: popen.pid for name, popen in zip(WORKERS, started, strict=True)}
            self.wait(lambda: set(self.pids.values()) <= self._known(), "both workers are there")
            yield
        finally:
            for popen in started:
                stop(popen)

    def _start(self, name: str, flags: Sequence[str], log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", "tasks:app", "--queues", self.queue, *flags]
        # The URL in the environment and not in the arguments, where everybody could read its password.
        environment = {**os.environ, "DATABASE_URL": self.url, "WORKER_ID": name}
        return subprocess.Popen(command, cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _known(self) -> set[int]:
        return {worker.pid for worker in app.store.workers()}

    def _writable(self) -> bool:
        if self._engine.dialect.name != "sqlite":
            return True
        connection = sqlite3.connect(self._engine.url.database or "", timeout=0.5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True


def stop(popen: subprocess.Popen[bytes]) -> None:
    if popen.poll() is None:
        popen.send_signal(signal.SIGCONT)  # one that is frozen could not hear the next
        popen.terminate()
    try:
        popen.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


def begin(walk: str) -> Stage:
    parser = argparse.ArgumentParser()
    embedded = f"sqlite:///{HERE / 'holdfast.db'}"
    parser.add_argument("--database", default=embedded, metavar="URL", help="an upgraded store; else holdfast.db here")
    url = parser.parse_args().database
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without stopping the workers
    app.replace_store(url)
    return Stage(url, f"{walk}-{uuid.uuid4().hex[:6]}")


def verify(stage: Stage) -> None:
    """`holdfast verify`, over the whole store; it ends with 1 when the log proves anything wrong."""
    sys.stdout.flush()
    command = [sys.executable, "-m", "holdfast", "verify"]
    subprocess.run(command, cwd=HERE, env={**os.environ, "DATABASE_URL": stage.url}, check=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [["" if cell is None else str(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
