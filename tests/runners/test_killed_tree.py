"""SIGKILL to a runner is SIGKILL to everything that it ever started, also in sessions of their own."""

from pathlib import Path

import pytest

from holdfast.domain.manifest import Kind
from holdfast.runners.process import RunnerProcess, RunnerSpec
from tests.runners.driver import kill_quietly, pid_in, wait_gone
from tests.servers.waiting import DEADLINE_SECONDS

APP = """
import subprocess
from pathlib import Path
from holdfast import App
app = App("sqlite:///jobs.db")
@app.task
def nothing(): pass
Path("daemon").write_text(str(subprocess.Popen(["sleep", "300"], start_new_session=True).pid))
"""


def test_a_runner_that_is_killed_takes_its_daemons_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    runner = RunnerProcess(RunnerSpec("tasks:app", Kind.SYNC, 1, 5.0))
    daemon = pid_in(tmp_path / "daemon")
    try:
        runner.kill("the test says so")
        runner.wait(DEADLINE_SECONDS)
        wait_gone(daemon)
    finally:
        kill_quietly(daemon)
        runner.close()
