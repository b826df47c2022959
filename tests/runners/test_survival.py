"""What user code does to its own process, and what becomes of a runner that is left alone."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runners.driver import Start, job, kill_quietly, pid_in, wait_gone

TASKS = """
@app.task
def noop(): ...
@app.task
def wild(how: str):
    if how == "exit": sys.exit(3)
    if how == "interrupt": raise KeyboardInterrupt
    if how == "generator": raise GeneratorExit
    if how == "base": raise BaseException("strange")
    if how == "stdout": sys.stdout.close(); sys.stderr.close()
    if how == "cwd": os.chdir("/")
    if how == "signals": signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if how == "recursion": wild.function(how)
@app.task
async def awild(how: str):
    if how == "exit": sys.exit(3)
    if how == "interrupt": raise KeyboardInterrupt
    if how == "loop": asyncio.get_running_loop().stop()
    if how == "subtask":
        async def leave(): sys.exit(4)
        task = asyncio.create_task(leave())
        await asyncio.sleep(0.05)
@app.task
async def anoop(): ...
@app.task
def greedy(): bytearray(1 << 40)
@app.task
async def agreedy(): bytearray(1 << 40)
@app.task
def forks(ctx: Context):
    if os.fork() == 0:
        ctx.log("from the child")
        return "a child that comes back"
    os.wait()
    return "the parent"
@app.task
def descriptors(control: int) -> list[bool]:
    inherited = subprocess.run(
        [sys.executable, "-c", f"import os; os.fstat({control})"], capture_output=True, close_fds=False
    ).returncode == 0
    read, write = os.pipe()
    if os.fork() == 0:
        try: os.fstat(control); os.write(write, b"1")
        except OSError: os.write(write, b"0")
        os._exit(0)
    os.wait()
    return [inherited, os.read(read, 1) == b"1"]
@app.task
def child(path: str): Path(path).write_text(str(subprocess.Popen(["sleep", "300"]).pid)); time.sleep(300)
@app.task
def orphan(path: str):
    script = f"(setsid sh -c 'echo $$ > {path}; exec sleep 300' >/dev/null 2>&1 &) &"
    subprocess.run(["sh", "-c", script])
    while not Path(path).exists(): time.sleep(0.01)
    time.sleep(300)
@app.task
def lingers():
    import threading
    threading.Thread(target=time.sleep, args=(300,)).start()
"""


RAISED = {
    "exit": "SystemExit",
    "interrupt": "KeyboardInterrupt",
    "generator": "GeneratorExit",
    "base": "BaseException",
}


@pytest.mark.parametrize("slots", [1, 2])
def test_what_is_raised_ends_the_job_only(start: Start, slots: int) -> None:
    driver = start(TASKS, slots=slots).ready()
    for number, (how, code) in enumerate(RAISED.items()):
        driver.run(job(2 * number, "wild", how=how), job(2 * number + 1, "noop"))
        assert driver.outcome(f"{2 * number}.1")["error"]["code"] == code
        assert driver.outcome(f"{2 * number + 1}.1")["kind"] == "succeeded"


def test_what_is_done_to_the_process_leaves_the_protocol_alone(start: Start) -> None:
    driver = start(TASKS).ready()
    for number, how in enumerate(["stdout", "cwd", "signals", "recursion"]):
        driver.run(job(2 * number, "wild", how=how), job(2 * number + 1, "noop"))
        assert driver.outcome(f"{2 * number}.1")["kind"] == ("failed" if how == "recursion" else "succeeded")
        assert driver.outcome(f"{2 * number + 1}.1")["kind"] == "succeeded"
    driver.send("stop")
    assert driver.wait_exit() == 0


LOOP = {"exit": "failed", "interrupt": "failed", "loop": "succeeded", "subtask": "succeeded"}


def test_a_loop_survives_its_coroutines(start: Start) -> None:
    driver = start(TASKS, kind="async", slots=4).ready()
    for number, (how, kind) in enumerate(LOOP.items()):
        driver.run(job(2 * number, "awild", how=how))
        assert driver.outcome(f"{2 * number}.1")["kind"] == kind, how
        driver.run(job(2 * number + 1, "anoop"))
        assert driver.outcome(f"{2 * number + 1}.1")["kind"] == "succeeded", how


@pytest.mark.parametrize(("kind", "task"), [("sync", "greedy"), ("async", "agreedy")])
def test_out_of_memory_is_a_crash_and_the_runner_ends(start: Start, kind: str, task: str) -> None:
    driver = start(TASKS, kind=kind, memory=64 << 20).ready()
    driver.run(job(1, task), job(2, "noop"))
    assert driver.wait_exit() == 1
    assert driver.heard("done", id="1.1")[0]["outcome"]["kind"] == "crashed"
    assert driver.heard("returned")[0]["ids"] == ["2.1"]


def test_a_forked_child_that_comes_back_does_not_speak_for_the_runner(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "forks"), job(2, "noop"))
    assert driver.outcome("1.1")["result"] == "the parent"
    driver.outcome("2.1")
    assert driver.order() == ["started 1.1", "done 1.1", "started 2.1", "done 2.1"]
    assert not driver.heard("log")


def test_nobody_inherits_the_control_socket(start: Start) -> None:
    driver = start(TASKS).ready()
    control = next(
        int(path.name)
        for path in Path(f"/proc/{driver.pid}/fd").iterdir()
        if int(path.name) > 2 and str(path.readlink()).startswith("socket:")
    )
    driver.run(job(1, "descriptors", control=control))
    assert driver.outcome("1.1")["result"] == [False, False]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_without_a_supervisor_it_ends_with_all_it_started(start: Start, tmp_path: Path, kind: str) -> None:
    driver = start(TASKS, kind=kind).ready()
    driver.run(job(1, "child", path=str(tmp_path / "pid")))
    pid = pid_in(tmp_path / "pid")
    driver.socket.shutdown(socket.SHUT_RDWR)
    assert driver.wait_exit() == 1
    wait_gone(pid)


def test_an_orphan_stays_in_the_runners_tree(start: Start, tmp_path: Path) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "orphan", path=str(tmp_path / "pid")))
    pid = pid_in(tmp_path / "pid")
    driver.close()
    wait_gone(pid)


def test_interrupts_are_the_supervisors(start: Start) -> None:
    driver = start(TASKS).ready()
    os.kill(driver.pid, signal.SIGINT)
    driver.run(job(1, "noop"))
    assert driver.outcome("1.1")["kind"] == "succeeded"


def test_term_ends_it(start: Start) -> None:
    driver = start(TASKS).ready()
    os.kill(driver.pid, signal.SIGTERM)
    assert driver.wait_exit() == -signal.SIGTERM


def test_threads_left_behind_do_not_hold_up_the_end(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "lingers"))
    driver.outcome("1.1")
    driver.send("stop")
    assert driver.wait_exit() == 0


MIDDLE = """
import sys, time
from pathlib import Path
from tests.runners.driver import Driver, job
driver = Driver(Path(sys.argv[1])).ready()
driver.run(job(1, sys.argv[2]))
driver.wait("started")
(Path(sys.argv[1]) / "runner").write_text(str(driver.pid))
time.sleep(300)
"""

HOGS = """
@app.task
def sleeps(): time.sleep(300)
@app.task
def hogs(): sum(range(10**12))  # one C call that never lets go of the interpreter
app.command("program", ["sh", "-c", "echo $$ > $0; exec sleep 300", str(Path.cwd() / "program")])
"""


@pytest.mark.parametrize("task", ["sleeps", "hogs", "program"])
def test_it_dies_with_its_parent(tmp_path: Path, task: str) -> None:
    from tests.runners.driver import PREFACE

    (tmp_path / "tasks.py").write_text(PREFACE + HOGS)
    middle = subprocess.Popen([sys.executable, "-c", MIDDLE, str(tmp_path), task])
    runner = pid_in(tmp_path / "runner")
    pids = [runner] if task != "program" else [runner, pid_in(tmp_path / "program")]
    try:
        middle.kill()
        middle.wait()
        wait_gone(*pids)
    finally:
        for pid in pids:
            kill_quietly(pid)


def test_it_does_not_start_for_somebody_else(tmp_path: Path) -> None:
    words: dict[str, Any] = {"fd": 0, "app": "tasks", "kind": "sync", "slots": 1, "parent": 1}
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    ended = subprocess.run([sys.executable, "-m", "holdfast.runners.child", *flags], cwd=tmp_path, check=False)
    assert ended.returncode == 1
