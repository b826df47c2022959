"""The member as a process: started, waited for, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from holdfast.domain.errors import HoldfastError
from holdfast.runners.commands.spawn import dying_with_us
from holdfast.settings import Settings, neutral_environment

PATIENCE_SECONDS = 10.0
TAIL_BYTES = 2_000


class MemberFailed(HoldfastError):
    """The worker of the measurement ended by itself."""


class Crew:
    """One worker. It ends with `close`, and with this process, however that ends."""

    def __init__(self, settings: Settings, queue: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        command = [sys.executable, "-m", "holdfast.bench.member", queue]
        self._popen = subprocess.Popen(
            dying_with_us(command, self._log.fileno()),
            pass_fds=[self._log.fileno()],
            cwd=Path.cwd(),
            env=_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the bench, which stops it in its own order
        )

    def check(self) -> None:
        if self._popen.poll() is not None:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-TAIL_BYTES:].strip()
            raise MemberFailed(f"The worker of the measurement ended by itself: {said or 'without a word'}")

    def close(self) -> None:
        self._popen.terminate()
        try:
            self._popen.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        self._log.close()


def _environment(settings: Settings) -> dict[str, str]:
    """Only what leads to the database: no Redis, no control plane, no collector, whatever this process is told."""
    kept = neutral_environment()
    kept["DATABASE_URL"] = settings.database_url
    kept["HOLDFAST_NOTIFY"] = "true" if settings.notify else "false"
    kept["POLL_INTERVAL"] = str(settings.poll_interval)
    if settings.listen_url is not None:
        kept["HOLDFAST_LISTEN_URL"] = settings.listen_url
    return kept
