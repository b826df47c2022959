"""How soon a worker reacts: to a new job, to the end of a runner, to a cancel request, to its own end.

The test suite proves that each of these happens, and never how soon: its machine may be busy. These are the figures,
in milliseconds, from real workers; and the share of a core that an idle worker uses.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil

from benchmarks.curves.usage import cpu
from benchmarks.databases import Databases
from benchmarks.tables import markdown
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.servers.waiting import gone, wait_until

APP = """
import os, signal, time
from datetime import datetime
from pathlib import Path
from holdfast import App, Context

app = App()

@app.task
def start() -> float:
    return time.time()

@app.task
def kill_runner(ctx: Context) -> float:
    if ctx.attempt == 1:
        Path("killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    return time.time()

@app.task
def wait_for_cancel(ctx: Context) -> None:
    Path("waiting").write_text(str(os.getpid()))
    ctx.wait_cancelled(600)
    Path("cancelled").write_text(str(time.time()))

@app.task
def print_line(ctx: Context) -> None:
    print("line")
    while not ctx.wait_cancelled(600): pass
"""
REPEATS = 20
IDLE_SECONDS = 30.0
REST_SECONDS = 0.2  # notifications are coalesced for 50 ms: the next job is not the second of a burst
TIMEOUT_SECONDS = 2.0
Milliseconds = list[float]


class Fleet:
    """A store and workers of one task file."""

    def __init__(self, store: SqlStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.url = store.database.engine.url.render_as_string(hide_password=False)
        (folder / "tasks.py").write_text(APP)

    def holdfast(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env={**os.environ, "DATABASE_URL": self.url},
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def worker(self) -> Iterator[psutil.Process]:
        """A worker that has run a job; it is stopped at the end, if it still runs."""
        with self.holdfast("worker", "tasks:app", "--processes", "2", "--log-level", "error") as process:
            try:
                self.finish(self.enqueue("start"))
                yield psutil.Process(process.pid)
            finally:
                process.terminate()

    def enqueue(self, task: str) -> str:
        return self.store.enqueue(NewJob(task=task)).id

    def finish(self, job_id: str) -> float:
        """What the job returned, once it has ended."""
        wait_until(lambda: self.store.job(job_id).state.value in ("succeeded", "cancelled"), what=f"{job_id} ends")
        result = self.store.job(job_id).result
        return float(result) if result is not None else 0.0

    def read(self, name: str) -> str:
        """What a task wrote into a file, which is then removed."""
        file = self.folder / name
        wait_until(lambda: file.exists() and file.read_text() != "", what=f"a task writes {name}")
        text = file.read_text()
        file.unlink()
        return text


def start_job(fleet: Fleet, repeats: int) -> Milliseconds:
    took = []
    with fleet.worker():
        for _ in range(repeats):
            time.sleep(REST_SECONDS)
            job_id = fleet.enqueue("start")
            enqueued = time.time()
            took.append(1000 * (fleet.finish(job_id) - enqueued))
    return took


def restart_after_killed_runner(fleet: Fleet, repeats: int) -> Milliseconds:
    took = []
    with fleet.worker():
        for _ in range(repeats):
            job_id = fleet.enqueue("kill_runner")
            restarted = fleet.finish(job_id)
            took.append(1000 * (restarted - float(fleet.read("killed"))))
    return took


def reach_job_with_cancel(fleet: Fleet, repeats: int) -> Milliseconds:
    took = []
    with fleet.worker():
        for _ in range(repeats):
            job_id = fleet.enqueue("wait_for_cancel")
            fleet.read("waiting")
            requested = time.time()
            fleet.store.cancel([job_id])
            took.append(1000 * (float(fleet.read("cancelled")) - requested))
            fleet.finish(job_id)
    return took


def stop_idle_worker(fleet: Fleet, repeats: int) -> Milliseconds:
    took = []
    for _ in range(max(3, repeats // 4)):
        with fleet.worker() as worker:
            began = time.monotonic()
            worker.terminate()
            wait_until(lambda pid=worker.pid: gone(pid), what="the worker stops")  # type: ignore[misc]
            took.append(1000 * (time.monotonic() - began))
    return took


def end_runners_of_killed_supervisor(fleet: Fleet, repeats: int) -> Milliseconds:
    took = []
    for _ in range(max(3, repeats // 4)):
        with fleet.worker() as worker:
            runners = [child.pid for child in worker.children(recursive=True)]
            began = time.monotonic()
            worker.send_signal(signal.SIGKILL)
            wait_until(lambda pids=runners: all(map(gone, pids)), what="the runners end")  # type: ignore[misc]
            took.append(1000 * (time.monotonic() - began))
    return took


def follow_log_line(fleet: Fleet, repeats: int) -> Milliseconds:
    """From the time in the line until `holdfast jobs logs -f` has printed it."""
    took = []
    with fleet.worker():
        for _ in range(max(3, repeats // 4)):
            job_id = fleet.enqueue("print_line")
            with fleet.holdfast("jobs", "logs", "-f", "--json", job_id) as follower:
                assert follower.stdout is not None
                for text in follower.stdout:
                    event = json.loads(text)
                    if event["event"] == "log" and event["message"] == "line":
                        took.append(1000 * (time.time() - _timestamp(event["at"])))
                        fleet.store.cancel([job_id])
            fleet.finish(job_id)
    return took


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def exceed_store_timeout(handed: Databases, fleet: Fleet, repeats: int) -> Milliseconds:
    """How much longer than its time limit a call takes when the server does not answer."""
    server = psutil.Process(handed.server.pid)
    took = []
    for _ in range(max(3, repeats // 4)):
        store = open_store(fleet.url, timeout_seconds=TIMEOUT_SECONDS)
        store.counts()
        stopped = [server, *server.children(recursive=True)]
        for process in stopped:
            process.suspend()
        began = time.monotonic()
        try:
            store.counts()
        except StoreUnavailable:
            took.append(1000 * (time.monotonic() - began - TIMEOUT_SECONDS))
        finally:
            for process in stopped:
                process.resume()
        store.close()
    return took


def idle_share(fleet: Fleet, seconds: float) -> float:
    """The share of a core that an idle worker and its runners use."""
    with fleet.worker() as worker:
        time.sleep(min(15.0, seconds))  # until the waits between two polls have grown
        began, before = time.monotonic(), cpu(worker.pid)
        time.sleep(seconds)
        return (cpu(worker.pid) - before) / (time.monotonic() - began)


REACTIONS: dict[str, Callable[[Fleet, int], Milliseconds]] = {
    "enqueue of a job, to its start by an idle worker": start_job,
    "SIGKILL of a runner, to the restart of its job": restart_after_killed_runner,
    "cancel request, to its arrival in the running job": reach_job_with_cancel,
    "SIGTERM of an idle worker, to its end": stop_idle_worker,
    "SIGKILL of a supervisor, to the end of its runners": end_runners_of_killed_supervisor,
    "line of a job, to `holdfast jobs logs -f`": follow_log_line,
}
SILENT_SERVER = f"call to a server that does not answer: beyond the timeout of {TIMEOUT_SECONDS:.0f} s"


def run(handed: Databases, *, scale: float = 1.0) -> str:
    repeats = max(3, int(REPEATS * scale))
    rows: list[list[object]] = []
    idle = {}
    for kind in handed.kinds:
        for name, measure in REACTIONS.items():
            with _fleet(handed, kind) as fleet:
                rows.append(_row(kind, name, measure(fleet, repeats)))
        if kind == "postgres":
            with _fleet(handed, kind) as fleet:
                rows.append(_row(kind, SILENT_SERVER, exceed_store_timeout(handed, fleet, repeats)))
        with _fleet(handed, kind) as fleet:
            idle[kind] = idle_share(fleet, IDLE_SECONDS * min(1.0, scale))
    shares = ", ".join(f"{share:.2%} of a core on {kind}" for kind, share in idle.items())
    table = markdown(["store", "from, to", "median ms", "longest ms", "times"], rows)
    return f"Reactions of one worker of 2 processes\n\n{table}\n\nAn idle worker uses {shares}."


@contextmanager
def _fleet(handed: Databases, kind: str) -> Iterator[Fleet]:
    with handed.store(kind) as store, tempfile.TemporaryDirectory() as folder:
        yield Fleet(store, Path(folder))


def _row(kind: str, name: str, took: Milliseconds) -> list[object]:
    return [kind, name, f"{statistics.median(took):,.1f}", f"{max(took):,.1f}", len(took)]
