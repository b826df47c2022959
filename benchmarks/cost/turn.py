"""One turn of `python -m benchmarks cost`: CPU seconds of each step on one database, as JSON on stdout.

The caller sets PYTHONPATH to the sources of the revision to measure. This program uses only the public API, so that it
runs with every revision since the baseline.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

TASKS = """
import os
from holdfast import App

app = App()
pipe = None

@app.task
def noop(number: int) -> None:
    pass

@app.task
def signal(path: str) -> None:
    global pipe
    if pipe is None:
        pipe = os.open(path, os.O_WRONLY)
    os.write(pipe, b".")
"""
CHUNK = 1_000  # jobs of one bulk enqueue
BATCH = 100  # jobs of one claim and of one settle
WARM_UP = 50
COMMANDS = 3
LAST = -100  # a priority: after all other jobs
POLL_SECONDS = 0.05
DEADLINE_SECONDS = 300.0

Seconds = dict[str, float]


class Meter:
    """CPU seconds of this process, of a database server and of a worker, each with its child processes."""

    def __init__(self, server: int | None) -> None:
        self._server = server
        self.worker: int | None = None

    def read(self) -> Seconds:
        seconds = {"client": time.process_time()}
        if self._server is not None:
            seconds["server"] = sum(_tree(self._server))
        if self.worker is not None:
            seconds["supervisor"], seconds["runners"] = _tree(self.worker)
        return seconds

    @contextmanager
    def over(self, jobs: int) -> Iterator[Seconds]:
        """Fills the dictionary with the CPU seconds per job of the block."""
        used: Seconds = {}
        before = self.read()
        yield used
        after = self.read()
        used.update({name: (after[name] - before[name]) / jobs for name in before})


def _tree(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of all below it: those that run and those that have ended."""
    process = psutil.Process(pid)
    ended = process.cpu_times()
    below = [_clock(child.pid) for child in process.children(recursive=True)]
    return _clock(pid), sum(below) + ended.children_user + ended.children_system


def _clock(pid: int) -> float:
    """CPU seconds of another process, to the nanosecond; /proc counts hundredths of a second."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # see clock_getcpuclockid(3)
    except OSError:  # it has ended
        return 0.0


class Turn:
    def __init__(self, meter: Meter, folder: Path, jobs: int, pickups: int) -> None:
        tasks = importlib.import_module("tasks")  # written a moment ago
        self._meter, self._folder, self._jobs, self._pickups = meter, folder, jobs, pickups
        self._noop, self._signal = tasks.noop, tasks.signal
        self._pipe = str(folder / "pipe")
        os.mkfifo(self._pipe)
        self._reader = os.open(self._pipe, os.O_RDWR)  # also a writer: no end of file between runners
        from holdfast import open_store

        self._store: Any = open_store(os.environ["DATABASE_URL"])

    def measure(self) -> dict[str, Seconds]:
        found = {"single enqueue": self._enqueue_singly(), "bulk enqueue": self._enqueue_in_bulk()}
        found["claim and settle"] = self._claim_and_settle()
        with self._worker() as started:
            found["worker start"] = started
            found["pickup"] = self._pick_up()
            found["drain"] = self._drain()
        found["command"] = self._run_commands()
        return found

    def _enqueue_singly(self) -> Seconds:
        for number in range(WARM_UP):
            self._noop.enqueue(number)
        with self._meter.over(self._jobs // 5) as used:
            for number in range(self._jobs // 5):
                self._noop.enqueue(number)
        return used

    def _enqueue_in_bulk(self) -> Seconds:
        with self._meter.over(self._jobs) as used:
            self._enqueue_many()
        return used

    def _enqueue_many(self) -> None:
        for start in range(0, self._jobs, CHUNK):
            self._noop.enqueue_many([(number,) for number in range(start, min(start + CHUNK, self._jobs))])

    def _claim_and_settle(self) -> Seconds:
        from holdfast import Report, Succeeded

        settled = 0
        with self._meter.over(sum(self._store.counts().values())) as used:
            while claimed := self._store.claim("benchmark", BATCH, ["default"], ["noop"]):
                reports = [Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed]
                settled += sum(answer.ok for answer in self._store.settle(reports))
        assert self._store.counts() == {"succeeded": settled}
        return used

    @contextmanager
    def _worker(self) -> Iterator[Seconds]:
        """A worker that has run jobs; yields the CPU seconds until it ran the first."""
        flags = ["--processes", "2", "--log-level", "error"]
        self._signal.enqueue(self._pipe)
        worker = subprocess.Popen([*_command("worker", "tasks:app"), *flags])
        try:
            self._wait_for_signal()
            self._meter.worker = worker.pid
            seconds = self._meter.read()
            for _ in range(WARM_UP):
                self._signal.enqueue(self._pipe)
            for _ in range(WARM_UP):
                self._wait_for_signal()
            yield {name: seconds[name] for name in ("supervisor", "runners")}
        finally:
            self._meter.worker = None
            worker.terminate()
            worker.wait()

    def _pick_up(self) -> Seconds:
        """A job for an idle worker, one after the other."""
        with self._meter.over(self._pickups) as used:
            for _ in range(self._pickups):
                self._signal.enqueue(self._pipe)
                self._wait_for_signal()
            self._wait_for_end()
        return used

    def _drain(self) -> Seconds:
        """A backlog. The queue is paused until all of it is there, so that enqueueing is not in the figure."""
        self._store.pause_queue("default")
        self._enqueue_many()
        self._signal.using(priority=LAST).enqueue(self._pipe)
        with self._meter.over(self._jobs) as used:
            self._store.resume_queue("default")
            self._wait_for_signal()
            self._wait_for_end()
        del used["client"]
        return used

    def _run_commands(self) -> Seconds:
        used = 0.0
        for _ in range(COMMANDS):
            child = subprocess.Popen(_command("jobs", "list"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _pid, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0
            used += usage.ru_utime + usage.ru_stime
        return {"client": used / COMMANDS}

    def _wait_for_signal(self) -> None:
        ready, _, _ = select.select([self._reader], [], [], DEADLINE_SECONDS)
        assert ready, f"no job ran within {DEADLINE_SECONDS:.0f} s"
        os.read(self._reader, 1)

    def _wait_for_end(self) -> None:
        while set(self._store.counts()) != {"succeeded"}:
            time.sleep(POLL_SECONDS)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *arguments]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", type=int, help="process id of the database server")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--pickups", type=int, required=True)
    options = parser.parse_args()
    folder = Path.cwd()
    (folder / "tasks.py").write_text(TASKS, encoding="utf-8")
    sys.path.insert(0, str(folder))
    upgrade = subprocess.run(_command("db", "upgrade"), capture_output=True, text=True, check=False)
    assert upgrade.returncode == 0, upgrade.stderr
    print(json.dumps(Turn(Meter(options.server), folder, options.jobs, options.pickups).measure()))


if __name__ == "__main__":
    main()
