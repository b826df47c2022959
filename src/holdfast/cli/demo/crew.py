"""Two real workers, `holdfast worker` as processes of their own, for as long as the scene lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

from holdfast.runners.commands.spawn import dying_with_us

HEARTBEAT = "0.5s"  # a cancel is noticed with the next one, and nobody wants to wait in a demo
_PATIENCE_SECONDS = 30.0


class Crew:
    """Workers that run until the block is left. They run the demo's own tasks in the demo's own queue."""

    def __init__(self, database: str, queue: str, names: Sequence[str]) -> None:
        self._database = database
        self._queue = queue
        self._names = names
        self._workers: list[subprocess.Popen[bytes]] = []
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the block is left

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self._workers.append(self._start(name))
        except BaseException:  # Ctrl-C, most likely: the block is not entered, so nobody else would stop them
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._log.close()

    def all_running(self) -> bool:
        return all(worker.poll() is None for worker in self._workers)

    def said(self) -> str:
        """The end of what they wrote, for when something went wrong."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        arguments = ["worker", "holdfast.cli.demo.tasks:app", "--queues", self._queue, "--processes", "2"]
        quiet = ["--heartbeat", HEARTBEAT, "--grace", "0s", "--log-level", "error"]
        command = [sys.executable, "-m", "holdfast", *arguments, *quiet]
        return subprocess.Popen(
            dying_with_us(command, self._log.fileno()),
            pass_fds=[self._log.fileno()],
            # In the environment and not in the arguments, where everybody could read the password.
            env={**os.environ, "DATABASE_URL": self._database, "WORKER_ID": name, "LEASE_SECONDS": "60"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the demo, which stops them in its own order
        )
