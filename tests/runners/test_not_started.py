"""A runner whose supervisor has died before it could ask to be told of that loads no code of anybody's."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.waiting import DEADLINE_SECONDS

APP = """
from pathlib import Path
from holdfast import App
Path("imported").touch()
app = App("sqlite:///jobs.db")
@app.task
def nothing(): pass
"""


@pytest.mark.parametrize("is_ours", [False, True], ids=["of somebody else", "ours"])
def test_an_app_is_imported_for_its_own_supervisor_and_for_nobody_else(tmp_path: Path, is_ours: bool) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    ours, theirs = socket.socketpair()
    with theirs:
        words: dict[str, Any] = {"fd": theirs.fileno(), "app": "tasks:app", "kind": "sync", "slots": 1}
        words["parent"] = os.getpid() if is_ours else 1
        flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "holdfast.runners.child", *flags]
        runner = subprocess.Popen(command, cwd=tmp_path, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
    with ours, runner:
        is_heard = bool(ours.recv(1))  # that it is ready, or the end of the line
        ours.close()
        _, said = runner.communicate(timeout=DEADLINE_SECONDS)
    assert (runner.returncode, said) == (1, b"")
    assert ((tmp_path / "imported").exists(), is_heard) == (is_ours, is_ours)
