"""What a dead runner had started falls to the supervisor: each is killed, and reaped where that is ours to do."""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from holdfast.worker import supervisor
from holdfast.worker.supervisor import Supervisor
from tests.servers.waiting import gone, wait_until


def test_strays_that_are_no_children_keep_no_other_from_being_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stray = subprocess.Popen(["sleep", "300"])
    asked: list[tuple[int, list[int]]] = []

    def kill_strays(parent: int, known: list[int]) -> list[int]:
        asked.append((parent, known))
        stray.send_signal(signal.SIGKILL)
        wait_until(lambda: gone(stray.pid), what="the stray has ended")
        return [os.getppid(), stray.pid]

    monkeypatch.setattr(supervisor, "kill_strays", kill_strays)
    own: Any = SimpleNamespace(_older_children=[7], pool=[SimpleNamespace(pid=8)])
    Supervisor._clear_strays(cast(Supervisor, own))
    assert asked == [(os.getpid(), [7, 8])]
    assert not psutil.pid_exists(stray.pid), "it is not even a zombie"
    stray.wait()
