"""Run the real command line, as a process of its own or, for the many small cases, in this one."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast.cli import main
from tests.servers.waiting import DEADLINE_SECONDS

CONFIGURATION = (
    "CACHE_ENABLED",
    "CACHE_TTL_SECONDS",
    "COLUMNS",
    "DATABASE_URL",
    "FORCE_COLOR",
    "HOLDFAST_APP",
    "HOLDFAST_ARTIFACTS",
    "HOLDFAST_CONTROL_PLANE",
    "HOLDFAST_GRACE_SECONDS",
    "HOLDFAST_UPKEEP_SECONDS",
    "HOLDFAST_HEARTBEAT_SECONDS",
    "HOLDFAST_LISTEN_URL",
    "HOLDFAST_NOTIFY",
    "HOLDFAST_METRICS",
    "HOLDFAST_RATE_PER_SECOND",
    "HOLDFAST_REDIS_PREFIX",
    "HOLDFAST_REDIS_TIMEOUT",
    "HOLDFAST_REDIS_WINDOW",
    "HOLDFAST_RQ_SERIALIZER",
    "HOLDFAST_RQ_URL",
    "HOLDFAST_TOKEN",
    "HOLDFAST_WEBHOOK_ALLOW",
    "HOLDFAST_WEBHOOK_SECRET",
    "JOB_LOCK_TIMEOUT_SECONDS",
    "LINES",  # readline sets it and COLUMNS in pytest's process, and xdist's workers inherit them
    "LEASE_SECONDS",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "POLL_INTERVAL",
    "REDIS_URL",
    "WORKER_ID",
)


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What `--json` printed: one document and nothing else."""
        return json.loads(self.out)

    def succeeded(self) -> "Finished":
        assert self.code == 0, f"{self.err}\n{self.out[-4000:]}"
        return self

    def said_no(self) -> "Finished":
        assert self.code == 1, self
        return self

    def refused(self, *parts: str) -> None:
        """Exit code 2, nothing on stdout, and a sentence that names the thing and its rule."""
        assert (self.code, self.out) == (2, "")
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err


class CommandLine:
    """`holdfast` in one working directory, with a store that is named by flag, or not at all."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder = folder
        self.database = database

    def arguments(self, *arguments: str) -> list[str]:
        flags = ["--database", self.database] if self.database else []
        return [sys.executable, "-m", "holdfast", *flags, *arguments]

    def environment(self, **variables: str) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in CONFIGURATION} | variables

    def __call__(self, *arguments: str, stdin: str | bytes = b"", **variables: str) -> Finished:
        done = subprocess.run(
            self.arguments(*arguments),
            cwd=self.folder,
            env=self.environment(**variables),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


class InProcess(CommandLine):
    """The same without a process: a start takes longer than fifty refusals."""

    def __call__(self, *arguments: str, stdin: str | bytes = b"", **variables: str) -> Finished:
        out, err = _stream(), _stream()
        given = _stream(stdin.encode() if isinstance(stdin, str) else stdin)
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment(**variables), clear=True),
            mock.patch.object(sys, "stdin", given),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(self.arguments(*arguments)[3:])
        return Finished(code, _written(out), _written(err))


def _stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
