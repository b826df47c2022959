"""Type in what a page says: its blocks of commands, in a copy of the example, with the virtual environment active."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.acceptance.command_line import CONFIGURATION

ROOT = Path(__file__).parents[2]
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
LIMIT_SECONDS = 300.0  # of a whole walk
MADE = ("__pycache__", "holdfast*", "*.log")  # what running an example leaves in its folder


def block(page: str, mark: str) -> str:
    """The one block of a page below the comment of that name."""
    [found] = re.findall(rf"<!-- {mark} -->\n```(?:\w+)?\n(.*?)```", page, re.DOTALL)
    return str(found)


def cloned(example: str, root: Path) -> Path:
    """The example's folder as it is in a fresh clone, at `root`."""
    folder = root / "examples" / example
    shutil.copytree(ROOT / "examples" / example, folder, ignore=shutil.ignore_patterns(*MADE))
    return folder


def type_in(commands: str, folder: Path) -> str:
    """What they print, when all of them succeed. Whatever they started is gone afterwards: they are a session."""
    environment = {name: value for name, value in os.environ.items() if name not in CONFIGURATION}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=LIMIT_SECONDS)
    except BaseException:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
        raise
    assert shell.returncode == 0, f"{out}\n{err}"
    return out
