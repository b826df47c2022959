"""A virtual environment for each peer, made when it is first needed, with the newest releases.

They are kept under .cache/bench, which git ignores. Nothing is pinned, so each run says which versions it found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "bench"
ADAPTERS = Path(__file__).resolve().parent / "adapters"
OURS = "holdfast"
STAMP = "bench.json"
LIMIT_SECONDS = 600.0

_VERSIONS = """
import importlib.metadata, json, platform, sys
found = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""


class NotInstallable(Exception):
    """A peer's environment could not be made here; the message says why, in a line."""


@dataclass(frozen=True)
class Requirements:
    """What is installed for a peer. The first package is the peer; the others are what makes it fast."""

    packages: tuple[str, ...]
    python: tuple[int, int] | None = None  # what its newest release needs, where that is more than ours


# psycopg's and hiredis' compiled forms and uvloop are what somebody in a hurry would install.
REQUIREMENTS = {
    "absurd": Requirements(("absurd-sdk", "absurdctl", "psycopg[binary]")),  # absurdctl carries the schema
    "awa": Requirements(("awa-pg", "uvloop")),
    "celery": Requirements(("celery[redis]", "hiredis")),
    "chancy": Requirements(("chancy", "psycopg[binary]")),
    "dbos": Requirements(("dbos",)),
    "dramatiq": Requirements(("dramatiq[redis]", "hiredis")),
    "flexiq": Requirements(("flexiq",)),
    "huey": Requirements(("huey", "redis", "hiredis")),
    "oban": Requirements(("oban", "psycopg[binary]", "uvloop"), python=(3, 12)),
    "pgqueuer": Requirements(("pgqueuer", "asyncpg", "uvloop")),
    "procrastinate": Requirements(("procrastinate", "psycopg[binary]")),
    "rq": Requirements(("rq", "hiredis")),
    "saq": Requirements(("saq[postgres,redis]", "psycopg[binary]", "hiredis", "uvloop")),
    "taskiq": Requirements(("taskiq", "taskiq-redis", "hiredis", "uvloop")),
}


@dataclass(frozen=True)
class Environment:
    """An interpreter that can import the peer, and what was found there."""

    python: Path
    python_version: str
    versions: dict[str, str]


def prepare(name: str, *, upgrade: bool = False) -> Environment:
    """The environment of a peer; made if it is missing, renewed with `upgrade` or when what it needs has changed."""
    if name == OURS:
        return _described(Path(sys.executable), ("holdfast", "psycopg"))
    requirements = REQUIREMENTS[name]
    folder = CACHE / "venvs" / name
    python = folder / "bin" / "python"
    stamp = folder / STAMP
    wanted = json.dumps([requirements.packages, requirements.python])
    if upgrade or not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _run([_interpreter(requirements.python), "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "--quiet", "--upgrade", *requirements.packages])
        stamp.write_text(wanted)
    return _described(python, [re.sub(r"\[.*", "", package) for package in requirements.packages])


def _interpreter(needed: tuple[int, int] | None) -> str:
    """Ours, or the oldest that is new enough: the closer to ours, the fairer."""
    if needed is None or sys.version_info[:2] >= needed:
        return sys.executable
    found = [(version, path) for path in _candidates() if (version := _version(path)) >= needed]
    if not found:
        raise NotInstallable(f"needs Python {needed[0]}.{needed[1]}")
    return str(min(found)[1])


def _candidates() -> Iterator[Path]:
    for minor in range(sys.version_info.minor + 1, sys.version_info.minor + 10):
        if on_path := shutil.which(f"python3.{minor}"):
            yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from pyenv.glob("versions/*/bin/python3")  # installed, though not switched on
    yield from Path.home().glob(".local/share/uv/python/*/bin/python3")


def _version(python: Path) -> tuple[int, int]:
    ask = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
    return (int(answer[0]), int(answer[1])) if len(answer) == 2 else (0, 0)


def _described(python: Path, packages: Sequence[str]) -> Environment:
    found = json.loads(_run([python, "-c", _VERSIONS, *packages]))
    return Environment(python, found["python"], found["packages"])


def _run(command: Sequence[object]) -> str:
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable("the installation took too long") from None
    if done.returncode != 0:
        raise NotInstallable(reason(done.stderr))
    return done.stdout


def reason(errors: str) -> str:
    """The last error of an installer in one line, without saying where packages come from."""
    lines = [line.removeprefix("ERROR:").strip() for line in errors.splitlines() if line.startswith("ERROR:")]
    line = lines[-1] if lines else (errors.strip().splitlines() or ["failed without a word"])[-1]
    return without_places(line)[:200]


def without_places(text: str) -> str:
    """Without addresses and paths: where things lie on one machine is of no use to others."""
    return re.sub(r"(?<!\w)[\"']?(\w+:/)?/\S*[^\s,;:]", "…", text)
