"""Trees of processes that do not want to be killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runners import descendants as killing
from holdfast.runners.descendants import children, descendants, kill_strays, kill_tree, reap
from tests.runners.driver import is_gone, pid_in, wait_gone
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

# A subreaper, as runners are, so that what forks twice stays below it.
ROOT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from holdfast.runners.prctl import set_child_subreaper
set_child_subreaper()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = Path(sys.argv[1])
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.clear()
            (here / name).write_text(str(os.getpid()))
            return True
        os._exit(0)
    os.wait()
    return False
"""


@pytest.fixture
def tree() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for popen in started:
        kill_tree(popen.pid)
        popen.wait()


def start(tree: list[subprocess.Popen[bytes]], tmp_path: Path, script: str) -> subprocess.Popen[bytes]:
    tree.append(subprocess.Popen([sys.executable, "-c", ROOT + script, str(tmp_path)]))
    return tree[-1]


def test_a_daemon_in_a_session_of_its_own(tree: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    root = start(tree, tmp_path, "daemon('daemon')\ntime.sleep(600)")
    daemon = pid_in(tmp_path / "daemon")
    wait_until(lambda: daemon in children(root.pid), what="adoption by the subreaper")
    assert descendants(root.pid) == [daemon]
    assert set(kill_tree(root.pid)) == {root.pid, daemon}
    root.wait()
    wait_gone(daemon)


def test_a_slow_fork_bomb(tree: list[subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine it takes longer than a second until all of them have stopped.
    monkeypatch.setattr(killing, "_STOP_SECONDS", DEADLINE_SECONDS)
    script = """
(here / "started").write_text(str(os.getpid()))
for _ in range(200):
    if os.fork() == 0: os.setsid()
    time.sleep(0.02)
    if len(os.listdir(here)) > 150: break
    (here / str(os.getpid())).touch()
time.sleep(600)
"""
    root = start(tree, tmp_path, script)
    wait_until(lambda: len(descendants(root.pid)) > 20, what="a good number of forks")
    kill_tree(root.pid)
    root.wait()
    pids = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    wait_gone(*pids)


def test_what_has_gone_already_is_no_error() -> None:
    popen = subprocess.Popen(["true"])
    wait_until(lambda: is_gone(popen.pid), what="the end of true")
    kill_tree(popen.pid)  # a zombie
    assert popen.wait() == 0
    assert kill_tree(popen.pid) == []


def test_strays_are_killed_and_known_children_are_not(tree: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    script = """
from holdfast.runners.descendants import kill_strays
known = subprocess.Popen(["sleep", "300"])
if daemon("daemon"):
    if os.fork() == 0: (here / "below").write_text(str(os.getpid()))
    time.sleep(600)
while not (here / "below").exists() or not (here / "below").read_text(): time.sleep(0.01)
strays = kill_strays(os.getpid(), [known.pid])
for pid in strays: os.waitpid(pid, 0)
assert known.poll() is None
(here / "killed").write_text(" ".join(map(str, strays)))
known.kill()
"""
    root = start(tree, tmp_path, script)
    assert root.wait(DEADLINE_SECONDS) == 0
    assert (tmp_path / "killed").read_text() == (tmp_path / "daemon").read_text()
    wait_gone(pid_in(tmp_path / "below"))


def test_a_dead_stray_is_named_so_that_it_is_buried() -> None:
    popen = subprocess.Popen(["true"])
    wait_until(lambda: is_gone(popen.pid), what="the end of true")
    known = [pid for pid in children(os.getpid()) if pid != popen.pid]
    assert kill_strays(os.getpid(), known) == [popen.pid]
    assert reap([popen.pid]) == []
    popen.returncode = 0
