"""Which processes are a command's: its descendants, its session, those with its job in their environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from holdfast.runners.commands import tree
from holdfast.runners.commands.tree import CommandTree
from holdfast.runners.process_table import Process

RUNNER = os.getpid()
GONE = 2**31 - 1  # no process has such a pid
COMMAND = GONE - 1
NO_MARK = frozenset({b"HOLDFAST_JOB_ID=of no process"})
MARK = b"HOLDFAST_JOB_ID=of the command"


@pytest.fixture
def marked() -> Iterator[int]:
    """A process that has the mark and, for the tests, no place in the tree of the command."""
    with subprocess.Popen(["sleep", "300"], env={"HOLDFAST_JOB_ID": "of the command"}) as sleeper:
        yield sleeper.pid
        sleeper.kill()


def table(monkeypatch: pytest.MonkeyPatch, *rows: tuple[int, int, int]) -> None:
    """Pid, parent and session. All of them descend from the runner, and none from the command."""
    monkeypatch.setattr(tree, "processes", lambda: [Process(*row, started=1, is_zombie=False) for row in rows])
    below = {RUNNER: [pid for pid, _parent, _session in rows]}
    monkeypatch.setattr(tree, "descendants", lambda pid: below.get(pid, []))


def test_process_of_the_commands_session_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, (GONE, 1, COMMAND), (GONE - 2, 1, RUNNER))
    assert CommandTree(COMMAND, NO_MARK, None).members() == [GONE]


def test_new_child_of_a_runner_that_runs_nothing_else_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, new, deeper = GONE, GONE - 2, GONE - 3
    table(monkeypatch, (earlier, RUNNER, 1), (new, RUNNER, 1), (deeper, earlier, 1))
    assert CommandTree(COMMAND, NO_MARK, frozenset({earlier})).members() == [new]
    assert CommandTree(COMMAND, NO_MARK, None).members() == [], "beside others it could be another job's"


def test_process_with_the_marks_in_its_environment_is_the_commands(
    monkeypatch: pytest.MonkeyPatch, marked: int
) -> None:
    table(monkeypatch, (marked, RUNNER, 1), (GONE, RUNNER, 1))
    assert CommandTree(COMMAND, frozenset({MARK}), None).members() == [marked], "one that is gone has no environment"
    assert CommandTree(COMMAND, frozenset({MARK, b"ATTEMPT=2"}), None).members() == [], "all marks are needed"
