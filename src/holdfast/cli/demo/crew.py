"""Real workers, `holdfast worker` as processes of their own, each with a log in the demo's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.cli.demo import samples
from holdfast.runners.commands.spawn import dying_with_us
from holdfast.settings import neutral_environment

PATIENCE_SECONDS = 3.0
TAIL_LINES = 12
SERVE = "serve"  # whose log the control plane's is


class Crew:
    """They end with `close`, whatever they are doing, and with this process, however that ends."""

    def __init__(self, folder: Path, common: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**neutral_environment(), **common, "PYTHONPATH": samples.python_path()}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, queues: Sequence[str], door: Mapping[str, str]) -> int:
        """Its pid. The door is in the environment and not in the arguments, where everybody could read its secret."""
        flags = ["--queues", ",".join(queues), "--processes", "1", "--slots", "4", "--grace", "0s"]
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.demo.tasks:app", *flags]
        with self.log(name).open("wb") as log:
            popen = self._workers[name] = subprocess.Popen(
                dying_with_us(command, log.fileno()),
                pass_fds=[log.fileno()],
                cwd=self._folder,
                env={**self._environment, **door},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops them in its own order
            )
        return popen.pid

    def kill(self, name: str) -> int:
        """SIGKILL: it gets no chance to say anything. Its pid."""
        popen = self._workers.pop(name)
        popen.kill()
        popen.wait()
        return popen.pid

    def fallen(self) -> str | None:
        """One that has ended and was not killed."""
        return next((name for name, popen in self._workers.items() if popen.poll() is not None), None)

    def said(self, name: str) -> str:
        """The end of its log, for when something went wrong."""
        with suppress(OSError):
            lines = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
        return ""

    def close(self) -> None:
        for popen in self._workers.values():
            popen.terminate()
        for popen in self._workers.values():
            try:
                popen.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(popen.pid, signal.SIGKILL)
                popen.wait()

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
