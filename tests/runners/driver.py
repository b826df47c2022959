"""A supervisor for tests: starts one real runner over a socket pair and keeps every frame it writes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.runners import frames
from holdfast.runners.descendants import kill_tree, reap
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

Frame = dict[str, Any]


class Driver:
    def __init__(
        self,
        directory: Path,
        app: str = "tasks",
        kind: str = "sync",
        slots: int = 1,
        memory: int = 0,
        grace: float = 5.0,
    ) -> None:
        self.frames: list[Frame] = []
        self._decoder = frames.Decoder()
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        numbers = {"fd": theirs.fileno(), "slots": slots, "parent": os.getpid(), "memory": memory, "term-grace": grace}
        words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "holdfast.runners.child", "--app", app, "--kind", kind, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=directory,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    # talking

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.setblocking(True)
        self.socket.sendall(frames.encode(kind, **fields))
        self.socket.setblocking(False)

    def run(self, *jobs: Frame) -> None:
        self.send("run", jobs=list(jobs))

    def read(self) -> None:
        try:
            while data := self.socket.recv(256 * 1024):
                self.frames += self._decoder.feed(data)
        except (BlockingIOError, ConnectionError):
            return

    def heard(self, kind: str, **fields: Any) -> list[Frame]:
        self.read()
        wanted = {"t": kind, **fields}
        return [frame for frame in self.frames if wanted.items() <= frame.items()]

    def wait(self, kind: str, timeout: float = DEADLINE_SECONDS, **fields: Any) -> Frame:
        wait_until(lambda: bool(self.heard(kind, **fields)), what=f"{kind} {fields}", timeout=timeout)
        return self.heard(kind, **fields)[0]

    def ready(self) -> "Driver":
        self.wait("ready")
        return self

    def outcome(self, attempt_id: str, timeout: float = DEADLINE_SECONDS) -> dict[str, Any]:
        found: dict[str, Any] = self.wait("done", id=attempt_id, timeout=timeout)["outcome"]
        return found

    def order(self) -> list[str]:
        """`started 1.1`, `done 1.1`, … as they were written."""
        self.read()
        return [f"{frame['t']} {frame['id']}" for frame in self.frames if frame["t"] in ("started", "done")]

    # ending

    def wait_exit(self, timeout: float = DEADLINE_SECONDS) -> int:
        wait_until(lambda: self.popen.poll() is not None, what="the runner's exit", timeout=timeout)
        self.read()
        return int(self.popen.returncode)

    def close(self) -> None:
        if self.popen.poll() is None:
            killed = kill_tree(self.pid)
            self.popen.wait()
            reap(killed)
        self.socket.close()


Start = Callable[..., Driver]


@contextmanager
def starting(directory: Path) -> Iterator[Start]:
    drivers: list[Driver] = []

    def start(source: str, **options: Any) -> Driver:
        (directory / "tasks.py").write_text(PREFACE + source)
        drivers.append(Driver(directory, **options))
        return drivers[-1]

    try:
        yield start
    finally:
        for driver in drivers:
            driver.close()


PREFACE = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
from holdfast.tasks.app import App
from holdfast.tasks.context import Context
app = App()
"""


def job(number: int, task: str, timeout: float | None = None, **payload: Any) -> Frame:
    return {
        "id": f"{number}.1",
        "job_id": str(number),
        "attempt": 1,
        "token": "secret",
        "task": task,
        "version": None,
        "queue": "default",
        "source": None,
        "payload": payload,
        "timeout": timeout,
        "lease": 60.0,
        "traceparent": None,
    }


def pid_in(path: Path) -> int:
    """A pid that another process writes into this file."""
    wait_until(lambda: path.exists() and path.read_text().strip().isdigit(), what=f"a pid in {path.name}")
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    from holdfast.runners.process_table import process

    found = process(pid)
    return found is None or found.is_zombie


def wait_gone(*pids: int) -> None:
    """What was killed takes a moment to die; what the tests start sleeps for longer than this waits."""
    wait_until(lambda: all(is_gone(pid) for pid in pids), what=f"the end of {pids}")


def kill_quietly(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
