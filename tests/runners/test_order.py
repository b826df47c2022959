"""What is written, in which order: a crash must be charged to the job that ran."""

from pathlib import Path

import pytest

from holdfast.runners.child.channel import FLUSH_LINES, FLUSH_SECONDS
from tests.runners.driver import Start, job
from tests.servers.waiting import wait_until

TASKS = """
@app.task
def noop(): ...
@app.task
def wait_for(path: str):
    while not Path(path).exists(): time.sleep(0.01)
@app.task
def die(): os._exit(7)
@app.task
async def anoop(): ...
@app.task
async def await_for(path: str):
    while not Path(path).exists(): await asyncio.sleep(0.01)
@app.task
def chatty(ctx: Context):
    for number in range(250): ctx.log(f"line {number}", size=number)
    for number in range(1000): ctx.progress(number, 1000)
@app.task
async def achatty(ctx: Context):
    ctx.log("hello"); ctx.progress(1, 1)
"""


@pytest.mark.parametrize(("kind", "task", "slots"), [("sync", "noop", 1), ("async", "anoop", 1)])
def test_done_is_written_before_the_next_starts(start: Start, kind: str, task: str, slots: int) -> None:
    driver = start(TASKS, kind=kind, slots=slots).ready()
    driver.run(*[job(number, task) for number in range(50)])
    driver.wait("done", id="49.1")
    assert driver.order() == [f"{what} {number}.1" for number in range(50) for what in ("started", "done")]


def test_a_crash_leaves_the_queued_jobs_unstarted(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "noop"), job(2, "die"), job(3, "noop"))
    assert driver.wait_exit() == 7
    assert driver.order() == ["started 1.1", "done 1.1", "started 2.1"]


@pytest.mark.parametrize(("kind", "task"), [("sync", "wait_for"), ("async", "await_for")])
def test_give_back_returns_what_has_not_started(start: Start, tmp_path: Path, kind: str, task: str) -> None:
    driver = start(TASKS, kind=kind).ready()
    driver.run(*[job(number, task, path=str(tmp_path / "go")) for number in (1, 2, 3)])
    driver.wait("started", id="1.1")
    driver.send("give_back")
    assert driver.wait("returned")["ids"] == ["2.1", "3.1"]
    (tmp_path / "go").touch()
    assert driver.outcome("1.1")["kind"] == "succeeded"
    assert driver.order() == ["started 1.1", "done 1.1"]


@pytest.mark.parametrize(("kind", "task"), [("sync", "wait_for"), ("async", "await_for")])
def test_stop_finishes_what_has_started(start: Start, tmp_path: Path, kind: str, task: str) -> None:
    driver = start(TASKS, kind=kind).ready()
    driver.run(*[job(number, task, path=str(tmp_path / "go")) for number in (1, 2)])
    driver.wait("started", id="1.1")
    driver.send("stop")
    assert driver.wait("returned")["ids"] == ["2.1"]
    driver.run(job(3, task, path="/"))
    driver.wait("returned", ids=["3.1"])
    (tmp_path / "go").touch()
    assert driver.wait_exit() == 0
    assert driver.order() == ["started 1.1", "done 1.1"]


@pytest.mark.parametrize(("kind", "slots"), [("sync", 1), ("sync", 3), ("async", 4)])
def test_stop_ends_an_idle_runner(start: Start, kind: str, slots: int) -> None:
    driver = start(TASKS, kind=kind, slots=slots).ready()
    driver.send("stop")
    assert driver.wait_exit() == 0


@pytest.mark.parametrize(("kind", "task", "slots"), [("sync", "wait_for", 3), ("async", "await_for", 3)])
def test_slots_run_at_once_and_no_more(start: Start, tmp_path: Path, kind: str, task: str, slots: int) -> None:
    driver = start(TASKS, kind=kind, slots=slots).ready()
    driver.run(*[job(number, task, path=str(tmp_path / "go")) for number in range(5)])
    driver.wait("started", id="2.1")
    driver.send("give_back")
    assert driver.wait("returned")["ids"] == ["3.1", "4.1"]
    (tmp_path / "go").touch()
    wait_until(lambda: len(driver.heard("done")) == 3, what="three jobs done")


def test_logs_and_progress_come_before_done(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "chatty"), job(2, "noop"))
    driver.wait("done", id="2.1")
    before = driver.frames[: driver.frames.index(driver.heard("done", id="1.1")[0])]
    lines = [line for frame in before if frame["t"] == "log" for line in frame["lines"]]
    assert [line["message"] for line in lines] == [f"line {number}" for number in range(250)]
    assert [line["number"] for line in lines] == list(range(1, 251))
    values = [frame["value"] for frame in before if frame["t"] == "progress"]
    assert values[-1] == {"done": 999, "total": 1000}
    # Of an outbox that sleeps between two sends: by the same clock, so that a slow machine may send more of them.
    sends = driver.heard("done", id="1.1")[0]["usage"]["duration_ms"] / (FLUSH_SECONDS * 1000) + 2
    assert len(values) <= sends
    assert len([frame for frame in before if frame["t"] == "log"]) <= sends + 250 // FLUSH_LINES


def test_an_async_job_speaks_before_done_too(start: Start) -> None:
    driver = start(TASKS, kind="async", slots=4).ready()
    driver.run(job(1, "achatty"))
    driver.wait("done", id="1.1")
    assert [frame["t"] for frame in driver.frames] == ["ready", "started", "log", "progress", "done"]


def test_a_quiet_job_is_heard_while_it_runs(start: Start, tmp_path: Path) -> None:
    source = """
@app.task
def slow(ctx: Context, path: str):
    ctx.progress(1, 2, "half"); ctx.log("still here")
    while not Path(path).exists(): time.sleep(0.01)
"""
    driver = start(source).ready()
    driver.run(job(1, "slow", path=str(tmp_path / "go")))
    assert driver.wait("progress", id="1.1")["value"] == {"done": 1, "total": 2, "note": "half"}
    assert driver.wait("log", id="1.1")["lines"][0]["message"] == "still here"
    assert not driver.heard("done")
    (tmp_path / "go").touch()
    driver.outcome("1.1")


def test_usage_is_measured(start: Start) -> None:
    source = """
@app.task
def burn():
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
@app.task
def noop(): ...
"""
    driver = start(source).ready()
    driver.run(job(1, "burn"), job(2, "noop"))
    usage = driver.wait("done", id="1.1")["usage"]
    assert usage["cpu_ms"] >= 190
    assert usage["duration_ms"] >= 190, "one thread cannot burn more than the time that passes"
    assert usage["max_rss_kb"] > 5_000
    assert driver.wait("done", id="2.1")["usage"]["cpu_ms"] < usage["cpu_ms"], "of each job its own"


def test_an_unknown_task_is_released(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "from_the_future"), job(2, "noop"))
    assert driver.outcome("1.1") == {"kind": "released", "reason": "this runner does not know the task"}
    assert driver.outcome("2.1")["kind"] == "succeeded"
    assert "started 1.1" not in driver.order()
