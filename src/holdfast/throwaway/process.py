"""Start and stop one server process that never outlives the Python process that owns it."""

from __future__ import annotations

import functools
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from holdfast.throwaway.account import Account
from holdfast.throwaway.waiting import wait_until

EXEC_CHILD = Path(__file__).with_name("exec_child.py")
STOP_TIMEOUT_SECONDS = 30.0
LOG_TAIL_LINES = 40
# Below the range from which systems hand out ports for outgoing connections, so
# that no client can take a server's port while that server restarts.
PORTS = range(15_000, 30_000)


class ServerStartError(RuntimeError):
    """A server did not come up; the message holds the end of its log."""


class ServerProcess:
    """A running server. Making one starts it."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path,
        log: Path,
        account: Account | None,
        death_signal: signal.Signals,
    ) -> None:
        self._log = log
        self._popen = _spawner(os.getpid()).spawn(_Launch(_wrapped(command, account, death_signal), cwd=cwd, log=log))

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return not self._exited()

    def wait_ready(self, answers: Callable[[], bool], *, timeout: float = 60.0) -> None:
        """Wait until the server answers; if it does not, take it down and show its log."""
        try:
            wait_until(lambda: self._exited() or answers(), what="the server answers", timeout=timeout)
        except BaseException as error:
            self.kill()
            if isinstance(error, TimeoutError):
                raise self._start_error(str(error)) from error
            raise
        if self._exited():
            raise self._start_error(f"exit status {self._popen.returncode}")

    def stop(self, stop_signal: signal.Signals) -> None:
        """Ask the server to stop, and kill it if it does not listen."""
        if self._exited():
            return
        self._popen.send_signal(stop_signal)
        try:
            self._popen.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def _exited(self) -> bool:
        return self._popen.poll() is not None

    def _start_error(self, reason: str) -> ServerStartError:
        return ServerStartError(f"the server did not start: {reason}\n{tail(self._log)}")


class _Launch:
    """What to start, decided by the caller and carried out by the spawner's thread."""

    def __init__(self, command: Sequence[str], *, cwd: Path, log: Path) -> None:
        self.result: Future[subprocess.Popen[bytes]] = Future()
        self._command = command
        self._cwd = cwd
        self._log = log

    def run(self) -> None:
        try:
            self.result.set_result(self._popen())
        except OSError as error:
            self.result.set_exception(error)

    def _popen(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal is for the test run; it stops its servers in its own order.
                start_new_session=True,
            )


class _Spawner:
    """Starts processes from one thread that lives as long as this process.

    The kernel sends the parent-death signal when the *thread* that forked ends. A
    test may restart a server from a thread that ends long before the test does.
    A daemon thread is right here: the interpreter does not end it before exit hooks ran.
    """

    def __init__(self) -> None:
        self._launches: queue.SimpleQueue[_Launch] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="server-spawner", daemon=True).start()

    def spawn(self, launch: _Launch) -> subprocess.Popen[bytes]:
        self._launches.put(launch)
        return launch.result.result()

    def _serve(self) -> None:
        while True:
            self._launches.get().run()


@functools.cache
def _spawner(_pid: int) -> _Spawner:
    # One for each process id: a forked child inherits the object but not its thread.
    return _Spawner()


def _wrapped(command: Sequence[str | Path], account: Account | None, death_signal: signal.Signals) -> list[str]:
    uid, gid = ("-", "-") if account is None else (str(account.uid), str(account.gid))
    owner = str(os.getpid())
    # -I -S: the shim needs the standard library only, and starts faster so.
    shim = [sys.executable, "-I", "-S", str(EXEC_CHILD), owner, str(int(death_signal)), uid, gid]
    return [*shim, *map(str, command)]


def server_environment() -> dict[str, str]:
    """Our environment without the settings that would reconfigure a Postgres behind our back."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerStartError("found no free port")


def tail(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
