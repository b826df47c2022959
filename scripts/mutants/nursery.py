"""A process that has loaded the libraries, and nothing of ours. For each trial it forks one that runs pytest: to load
them anew took most of the time of a trial.

It reads a request a line, as JSON: the arguments of pytest, variables, and the file for what pytest says. It answers
with two numbers, each on a line: the pid, at once, and the exit status, at the end.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

LIBRARIES = (
    "pytest", "hypothesis", "schemathesis.pytest.plugin", "xdist.plugin", "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite", "psycopg", "alembic.command", "fastapi", "httpx", "pydantic", "redis", "uvicorn",
    "psutil", "structlog", "typer", "rich.console", "jinja2",
)  # fmt: skip


def main() -> None:
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    if any(name.partition(".")[0] == "holdfast" for name in sys.modules):
        raise RuntimeError("holdfast is loaded before any mutant was planted")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(request: dict[str, Any]) -> None:
    """As if it had been started: a session and outputs of its own."""
    import pytest

    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ.update(request["environment"])
    code = 70
    try:
        code = int(pytest.main(request["arguments"]))
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
