"""Stopping one job: queued, running, on a loop, as a command."""

from pathlib import Path

import pytest

from tests.runners.driver import Start, job, pid_in, wait_gone

TASKS = """
@app.task
def patient(ctx: Context):
    assert ctx.wait_cancelled("10m")
    return [ctx.cancel_reason, ctx.lease_lost]
@app.task
async def sleeper(): await asyncio.sleep(600)
@app.task
async def stubborn():
    try: await asyncio.sleep(600)
    except asyncio.CancelledError: return "finished anyway"
@app.task
async def blocker(path: str):
    while not Path(path).exists(): time.sleep(0.01)
@app.task
async def suicidal(): asyncio.current_task().cancel(); await asyncio.sleep(600)
app.command("polite", ["sh", "-c", "echo $$ > $0; exec sleep 600", str(Path.cwd() / "pid")])
app.command("deaf", ["sh", "-c", "trap '' TERM; echo $$ > $0; while :; do sleep 0.05; done", str(Path.cwd() / "pid")])
"""

ENDINGS = [
    ("cancel_requested", {"kind": "cancelled", "reason": "cancel requested"}),
    ("lease_lost", {"kind": "released", "reason": "lease lost"}),
]


@pytest.mark.parametrize(("reason", "ending"), ENDINGS)
@pytest.mark.parametrize(("kind", "task"), [("sync", "patient"), ("async", "sleeper")])
def test_a_queued_job(start: Start, kind: str, task: str, reason: str, ending: dict[str, str]) -> None:
    driver = start(TASKS, kind=kind).ready()
    driver.run(job(1, task), job(2, task))
    driver.wait("started", id="1.1")
    driver.send("cancel", id="2.1", reason=reason)
    assert driver.outcome("2.1") == ending
    assert "started 2.1" not in driver.order()
    driver.send("cancel", id="1.1", reason=reason)
    driver.outcome("1.1")


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("reason", ["cancel_requested", "lease_lost", "timeout"])
def test_a_running_function_finds_out(start: Start, reason: str, slots: int) -> None:
    driver = start(TASKS, slots=slots).ready()
    driver.run(job(1, "patient"))
    driver.wait("started", id="1.1")
    driver.send("cancel", id="1.1", reason=reason)
    assert driver.outcome("1.1")["result"] == [reason, reason == "lease_lost"]


@pytest.mark.parametrize(("reason", "ending"), ENDINGS)
def test_a_running_coroutine_is_cancelled(start: Start, reason: str, ending: dict[str, str]) -> None:
    driver = start(TASKS, kind="async", slots=8).ready()
    driver.run(job(1, "sleeper"), job(2, "sleeper"))
    driver.wait("started", id="2.1")
    driver.send("cancel", id="1.1", reason=reason)
    assert driver.outcome("1.1") == ending
    (other, its_ending) = next(each for each in ENDINGS if each != (reason, ending))
    driver.send("cancel", id="2.1", reason=other)
    assert driver.outcome("2.1") == its_ending, "the first cancel was not for this one"


def test_a_timeout_of_a_coroutine_is_a_failure(start: Start) -> None:
    driver = start(TASKS, kind="async", slots=8).ready()
    driver.run(job(1, "sleeper", timeout=3.0))
    driver.wait("started", id="1.1")
    driver.send("cancel", id="1.1", reason="timeout")
    outcome = driver.outcome("1.1")
    assert outcome["kind"] == "failed"
    assert outcome["error"]["code"] == "timeout"
    assert outcome["error"]["retryable"] is True
    assert "3 s" in outcome["error"]["message"]


def test_a_coroutine_may_finish_all_the_same(start: Start) -> None:
    driver = start(TASKS, kind="async", slots=8).ready()
    driver.run(job(1, "stubborn"))
    driver.wait("started", id="1.1")
    driver.run(job(2, "sleeper"))
    driver.wait("started", id="2.1")  # the loop has been around: the first one is inside its sleep
    driver.send("cancel", id="1.1", reason="cancel_requested")
    assert driver.outcome("1.1")["result"] == "finished anyway"


def test_a_coroutine_that_has_started_but_not_run_yet(start: Start, tmp_path: Path) -> None:
    driver = start(TASKS, kind="async", slots=8).ready()
    driver.run(job(1, "blocker", path=str(tmp_path / "go")))
    driver.wait("started", id="1.1")
    driver.run(job(2, "sleeper"))  # the loop is blocked: it finds this and the cancel in one round
    driver.send("cancel", id="2.1", reason="cancel_requested")
    (tmp_path / "go").touch()
    assert driver.outcome("2.1") == {"kind": "cancelled", "reason": "cancel requested"}


def test_a_coroutine_that_cancels_itself_has_failed(start: Start) -> None:
    driver = start(TASKS, kind="async", slots=8).ready()
    driver.run(job(1, "suicidal"))
    assert driver.outcome("1.1")["error"]["code"] == "CancelledError"


@pytest.mark.parametrize(("reason", "ending"), ENDINGS)
def test_a_command_gets_term(start: Start, tmp_path: Path, reason: str, ending: dict[str, str]) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "polite"))
    pid = pid_in(tmp_path / "pid")
    driver.send("cancel", id="1.1", reason=reason)
    assert driver.outcome("1.1") == ending
    wait_gone(pid)


def test_a_command_that_ignores_term_is_killed(start: Start, tmp_path: Path) -> None:
    driver = start(TASKS, grace=0.3).ready()
    driver.run(job(1, "deaf", timeout=1.0))
    pid = pid_in(tmp_path / "pid")
    driver.send("cancel", id="1.1", reason="timeout")
    assert driver.outcome("1.1")["error"]["code"] == "timeout"
    wait_gone(pid)


def test_an_unknown_id_is_nothing(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.send("cancel", id="9.9", reason="cancel_requested")
    driver.send("stop")
    assert driver.wait_exit() == 0
