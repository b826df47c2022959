"""Where a test of the worker takes place: tasks in a file, a database, and worker processes that are really started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import dedent
from types import TracebackType
from typing import Any, Self

import psutil

from holdfast.domain.job import AuditEvent, Job, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.views import Refusal
from holdfast.stores.sql_store import SqlStore
from holdfast.throwaway.process import EXEC_CHILD
from holdfast.wiring.sql import open_store
from tests.acceptance.command_line import CONFIGURATION
from tests.chaos.databases import assert_verified, query
from tests.servers.waiting import DEADLINE_SECONDS, gone, wait_until

HEAD = """
import asyncio, ctypes, os, signal, subprocess, sys, time
from pathlib import Path
from holdfast import App, Cancel, Context, Permanent, Snooze, current
app = App()
"""
HOLDFAST = (sys.executable, "-m", "holdfast")
# A reaper whose last pass is longer ago than about a lease extends all leases: the store has been away.
REAPER_LEASE_SECONDS = 1_000_000.0
REAP_OFTEN = "from holdfast.domain import timing; timing.LONGEST_REAP_PERIOD_SECONDS = 1.0"


def patched(statements: str) -> list[str]:
    """Stands for `python -m holdfast`, with constants of the supervisor changed before it starts."""
    return [sys.executable, "-c", f"import sys\n{statements}\nfrom holdfast.__main__ import run\nsys.exit(run())"]


class WorkerProcess:
    """One `holdfast worker`; it dies with the test run, and its log is a file."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str], log: Path) -> None:
        # -I -S: the shim only needs the standard library.
        shim = [sys.executable, "-I", "-S", str(EXEC_CHILD), str(os.getpid()), str(int(signal.SIGKILL)), "-", "-"]
        self.log = log
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                [*shim, *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def runners(self) -> list[psutil.Process]:
        """Its runner processes."""
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if not gone(child.pid)]

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.running:
            self._popen.kill()
        self._popen.wait()

    def stop(self, timeout: float = DEADLINE_SECONDS) -> int:
        """SIGTERM, and the exit code."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = DEADLINE_SECONDS) -> int:
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end:\n{self.text()[-4000:]}") from None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        """Its log, line by line; what is not JSON was printed by a task."""
        found = []
        for line in self.text().splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def wait_for_log(self, text: str, timeout: float = DEADLINE_SECONDS) -> None:
        try:
            wait_until(lambda: text in self.text(), what=f"the worker says {text!r}", timeout=timeout)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.text()[-4000:]}") from None


class Site:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.store: SqlStore = open_store(url)
        self.workers: list[WorkerProcess] = []
        self.verify_at_end = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self.store.close()
        if error is None and self.verify_at_end:
            assert_verified(self.url)
        elif error is not None:
            for worker in self.workers:
                print(f"--- {worker.log.name}\n{worker.text()[-6000:]}")

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    # tasks and workers

    def tasks(self, source: str, name: str = "tasks") -> None:
        """Write the module; it begins with the imports that every one needs, and `app = App()`."""
        (self.folder / f"{name}.py").write_text(HEAD + dedent(source))

    def worker(
        self,
        *flags: str,
        app: str = "tasks:app",
        url: str | None = None,
        log_level: str = "debug",
        program: Sequence[str] = (),
        **environment: str,
    ) -> WorkerProcess:
        """Start one. Variables are given by name: LEASE_SECONDS="2"."""
        started = self.start("worker", app, *flags, url=url, log_level=log_level, program=program, **environment)
        self.workers.append(started)
        return started

    def up(self, *flags: str, app: str = "tasks:app", **environment: str) -> WorkerProcess:
        started = self.start("up", app, *flags, **environment)
        self.workers.append(started)
        return started

    def start(
        self,
        *words: str,
        url: str | None = None,
        log_level: str = "debug",
        program: Sequence[str] = (),
        **environment: str,
    ) -> WorkerProcess:
        """With an empty `url` nobody tells it a database: it has to find its own."""
        database = [] if url == "" else ["--database", url or self.url]
        command = [*(program or HOLDFAST), *database, *words, "--log-level", log_level]
        log = self.folder / f"worker-{len(self.workers)}.log"
        return WorkerProcess(command, self.folder, self.environment(**environment), log)

    def environment(self, **variables: str) -> dict[str, str]:
        """Ours, without what configures Holdfast, and with these."""
        return {name: value for name, value in os.environ.items() if name not in CONFIGURATION} | variables

    def drain(self, *flags: str, timeout: float = DEADLINE_SECONDS, **environment: str) -> WorkerProcess:
        """Run a worker until nothing is due."""
        worker = self.worker("--drain", *flags, **environment)
        code = worker.wait(timeout)
        assert code == 0, worker.text()[-4000:]
        return worker

    # jobs

    def enqueue(self, task: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        return self.store.enqueue(NewJob(task=task, payload=payload or {}, **options)).id

    def enqueue_many(self, task: str, count: int, **options: Any) -> list[str]:
        jobs = [NewJob(task=task, **options) for _ in range(count)]
        return [answer.id for answer in self.store.enqueue_many(jobs)]

    def job(self, job_id: str) -> Job:
        return self.store.job(job_id)

    def events(self, job_id: str) -> list[AuditEvent]:
        return self.store.events(job_id)

    def event_names(self, job_id: str) -> list[str]:
        return [event.event for event in self.events(job_id)]

    def claims(self, job_id: str) -> int:
        return self.event_names(job_id).count("claimed")

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return self.store.counts()

    def charged(self) -> tuple[int, int]:
        """The failures and crashes of all jobs together."""
        [row] = query(self.url, "SELECT coalesce(sum(failures), 0), coalesce(sum(crashes), 0) FROM holdfast_jobs")
        return int(row[0]), int(row[1])

    def count_events(self, event: str) -> int:
        """How often this happened to any job."""
        [(count,)] = query(self.url, f"SELECT count(*) FROM holdfast_events WHERE event = '{event}'")
        return int(count)

    def wait_for_counts(self, timeout: float = DEADLINE_SECONDS, **counts: int) -> None:
        """Until exactly so many jobs are in each state: succeeded=3."""
        self.wait(lambda: self.counts() == counts, f"jobs are {counts}", timeout)

    def wait_for_state(self, job_id: str, *states: State, timeout: float = DEADLINE_SECONDS) -> Job:
        self.wait(lambda: self.job(job_id).state in states, f"job is {' or '.join(states)}", timeout)
        return self.job(job_id)

    def wait_for_file(self, name: str, timeout: float = DEADLINE_SECONDS) -> Path:
        """A file that a task writes to say how far it is. It is there with its whole content: tasks write and rename,
        or write one short line."""
        path = self.folder / name
        self.wait(lambda: path.exists() and path.stat().st_size > 0, f"a task has written {name}", timeout)
        return path

    def wait_for_event(self, job_id: str, event: str, timeout: float = DEADLINE_SECONDS) -> AuditEvent:
        """The first one of this name."""
        self.wait(lambda: event in self.event_names(job_id), f"job has an event {event}", timeout)
        return next(found for found in self.events(job_id) if found.event == event)

    def wait_for_pids(self, name: str, timeout: float = DEADLINE_SECONDS) -> list[int]:
        """The processes that a task has written to this file."""
        return [int(pid) for pid in self.wait_for_file(name, timeout).read_text().split()]

    def wait_gone(self, pids: Iterable[int], what: str, timeout: float = DEADLINE_SECONDS) -> None:
        left = list(pids)
        self.wait(lambda: all(gone(pid) for pid in left), what, timeout)

    def take_leases(self, *job_ids: str) -> None:
        """Let the leases of running jobs expire, and reap them.

        Each job loses one lease, even if a heartbeat of its worker comes between the expiry and the reaper.
        """
        attempts = {job_id: self.job(job_id).attempt for job_id in job_ids}

        def are_taken() -> bool:
            jobs = [self.job(job_id) for job_id in job_ids]
            left = [job.id for job in jobs if job.state is State.RUNNING and job.attempt == attempts[job.id]]
            if left:
                self.expire_leases(*left)
                self.reap()
            return not left

        self.wait(are_taken, "the leases are taken away")

    def reap(self) -> None:
        """One pass of the reaper. However long ago the last pass was, it does not count as an outage of the store."""
        self.store.reap("the test", period=0.0, lease_seconds=REAPER_LEASE_SECONDS)

    def expire_leases(self, *job_ids: str) -> None:
        """Leave the rest to a reaper. For jobs whose worker sends no heartbeats any more."""
        named = ", ".join(f"'{job_id}'" for job_id in job_ids)
        update = "UPDATE holdfast_jobs SET lease_expires_at = '2000-01-01T00:00:00.000000Z'"
        query(self.url, f"{update} WHERE state = 'running' AND id IN ({named})")

    def wait_for_heartbeats(self, job_id: str, count: int = 1) -> None:
        """Until the lease of a running job has been renewed this many times."""
        for _ in range(count):
            before = self.job(job_id).heartbeat_at
            self.wait(lambda before=before: self.job(job_id).heartbeat_at != before, "the lease is renewed")  # type: ignore[misc]

    def wait_for_refusals(self, job_id: str) -> list[Refusal]:
        self.wait(lambda: bool(self.store.refusals(job_id)), "something about the job is refused")
        return self.store.refusals(job_id)

    def tell(self, name: str) -> None:
        """Create a file that a task waits for."""
        (self.folder / name).write_text("now")

    def wait(self, condition: Callable[[], bool], what: str, timeout: float = DEADLINE_SECONDS) -> None:
        try:
            wait_until(condition, what=what, timeout=timeout)
        except TimeoutError as error:
            logs = "\n".join(worker.text()[-3000:] for worker in self.workers)
            raise AssertionError(f"{error}; {self.counts()}\n{logs}") from None


def seconds() -> float:
    return time.monotonic()
