"""A runner whose supervisor is slow to answer: who waits can be stopped, and who is answered goes on."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import cast

import pytest

from holdfast import LeaseLost
from holdfast.domain.asks import Verb
from holdfast.domain.errors import StoreUnavailable
from holdfast.runners.child.asking import MOST_OPEN, MOST_OPEN_BYTES, WINDOW, Asks, JobAsks
from holdfast.runners.child.link import Link
from holdfast.runners.frames import Frame
from tests.runners.driver import Start, job
from tests.servers.waiting import wait_until

TASKS = """
import threading
from holdfast import Cancel, ConfigurationError, LeaseLost

@app.task
def ask(ctx: Context, title: str):
    try:
        return ctx.record("s", "a", {"title": title}).kept
    except (Cancel, LeaseLost) as error:
        return type(error).__name__

@app.task
def queue_up(ctx: Context):
    with ctx.source("full", max_wait="10m"):
        return "in"

@app.task
def own_limit(ctx: Context):
    def handler(*_):
        raise TimeoutError("the task's own limit")
    signal.signal(signal.SIGALRM, handler)
    try:
        return ctx.record("s", "a", {"title": "nobody answers"}).kept
    except TimeoutError as error:
        return str(error)

@app.task
def fork(ctx: Context):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ctx.record("s", "a", {"title": "x"})
        except ConfigurationError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reader, 1000).decode()

@app.task
def leave_a_thread(ctx: Context):
    def later():
        while not Path("over").exists():
            time.sleep(0.01)
        try:
            ctx.record("s", "a", {"title": "late"})
        except LeaseLost as error:
            Path("late").write_text(str(error))
    threading.Thread(target=later, daemon=True).start()

@app.task
def interrupted(ctx: Context):
    said, busy = [], []
    def handler(*_):
        if busy:
            return
        busy.append(1)
        try:
            ctx.record("s", "a", {"title": "from the handler"})
        except ConfigurationError:
            said.append("refused")
        else:
            said.append("answered")
        busy.clear()
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # not before: a slow machine would do nothing but handle
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    for n in range(50):
        ctx.record("s", "a", {"title": str(n)})
    while "answered" not in said:
        ctx.record("s", "a", {"title": "again"})
    signal.setitimer(signal.ITIMER_REAL, 0)
    return sorted(set(said))
"""

ASYNC = """
from holdfast import LeaseLost

@app.task
async def blocks_the_loop(ctx: Context):
    return ctx.record("s", "a", {"title": "x"}).kept

@app.task
async def waits(ctx: Context):
    return [one.kept for one in await asyncio.gather(*(ctx.arecord("s", "a", {"title": str(n)}) for n in range(200)))]

@app.task
async def cancelled(ctx: Context):
    await ctx.arecord("s", "a", {"title": "y"})
"""

WRITTEN = [{"id": "r", "dedupe_key": "k", "kept": "created"}]


def test_a_waiter_is_woken_when_its_job_has_to_stop(start: Start, tmp_path: Path) -> None:
    runner = start(TASKS, slots=3).ready()
    runner.run(job(1, "ask", title="cancelled"), job(2, "ask", title="lost"), job(3, "ask", title="answered"))
    asks = {number: runner.wait("ask", id=f"{number}.1") for number in (1, 2, 3)}
    assert asks[1]["verb"] == "records"
    assert asks[1]["body"]["records"][0]["data"] == {"title": "cancelled"}

    runner.send("cancel", id="1.1", reason="cancel_requested")
    runner.send("lease_lost", id="2.1")
    runner.send("answer", id="3.1", number=asks[3]["number"], value=WRITTEN)
    assert runner.outcome("1.1")["result"] == "Cancel"
    assert runner.outcome("2.1")["result"] == "LeaseLost"
    assert runner.outcome("3.1")["result"] == "created"

    # What comes too late, or to nobody, is nothing to stumble over.
    runner.send("answer", id="1.1", number=asks[1]["number"], value=WRITTEN)
    runner.send("answer", id="9.1", number=999, value=WRITTEN)
    runner.run(job(4, "leave_a_thread"), job(5, "fork"))
    assert "forked by the task" in runner.outcome("5.1")["result"]
    runner.outcome("4.1")
    (tmp_path / "over").touch()
    wait_until((tmp_path / "late").exists, what="the thread that was left behind is told")
    assert not runner.heard("ask", id="4.1")

    # Whoever waits for its turn in a source need not do so to the end of the grace.
    runner.run(job(6, "queue_up"))
    enter = runner.wait("ask", id="6.1")
    full = {"admitted": False, "retry_in": 300.0, "reason": "concurrency"}
    runner.send("answer", id="6.1", number=enter["number"], value=full)
    runner.send("give_back", draining=True)
    snoozed = runner.outcome("6.1")
    assert (snoozed["kind"], snoozed["reason"]) == ("snoozed", "the worker is stopping")


def test_a_signal_handler_may_ask_too(start: Start) -> None:
    runner = start(TASKS).ready()
    runner.run(job(1, "interrupted"))
    answered = 0
    while not runner.heard("done"):
        assert runner.popen.poll() is None
        for ask in runner.heard("ask")[answered:]:
            runner.send("answer", id="1.1", number=ask["number"], value=WRITTEN)
            answered += 1
    assert "answered" in runner.outcome("1.1")["result"]

    runner.run(job(2, "own_limit"))
    runner.wait("ask", id="2.1")
    os.kill(runner.pid, signal.SIGALRM)
    assert runner.outcome("2.1")["result"] == "the task's own limit"


def test_coroutines_are_answered_also_where_one_of_them_blocks_the_loop(start: Start) -> None:
    runner = start(ASYNC, kind="async", slots=8).ready()
    runner.run(job(1, "blocks_the_loop"))
    ask = runner.wait("ask", id="1.1")
    runner.send("answer", id="1.1", number=ask["number"], value=WRITTEN)
    assert runner.outcome("1.1")["result"] == "created"

    runner.run(job(2, "waits"), job(3, "cancelled"))
    runner.wait("ask", id="2.1")
    answered: set[int] = set()
    most = 0
    while len(answered) < 200:
        open_now = [ask for ask in runner.heard("ask") if ask["number"] not in answered and ask["id"] == "2.1"]
        most = max(most, len(open_now))
        for ask in open_now:
            answered.add(ask["number"])
            runner.send("answer", id="2.1", number=ask["number"], value=WRITTEN)
    assert runner.outcome("2.1")["result"] == ["created"] * 200
    assert most <= 64, "a supervisor is not flooded"
    runner.wait("ask", id="3.1")
    runner.send("cancel", id="3.1", reason="cancel_requested")
    assert runner.outcome("3.1")["kind"] == "cancelled"


# the window


class Wire:
    """What leaves a runner."""

    is_open = True
    is_sending_here = False

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.bytes = 0

    def send(self, data: bytes) -> None:
        self.sent.append(json.loads(data))
        self.bytes += len(data)

    def of(self, attempt_id: str) -> list[Frame]:
        return [frame for frame in self.sent if frame["id"] == attempt_id]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def asks(wire: Wire) -> Asks:
    return Asks(cast(Link, wire))


def answer(asks: Asks, frame: Frame) -> None:
    asks.answered({"t": "answer", "id": frame["id"], "number": frame["number"], "value": WRITTEN})


def test_an_attempt_that_ends_leaves_its_places_to_others(wire: Wire, asks: Asks) -> None:
    ended, other = JobAsks("1.1", asks), JobAsks("2.1", asks)
    for _ in range(WINDOW + 10):
        ended.tell(Verb.RECORDS, {"records": []})
    waiting = other._begin(Verb.RECORDS, {"records": []})
    assert (len(wire.of("1.1")), wire.of("2.1")) == (WINDOW, [])
    ended.close()
    assert len(wire.of("1.1")) == WINDOW, "what had not left stays here"
    [asked] = wire.of("2.1")
    answer(asks, asked)
    assert waiting.answer.result(0) == WRITTEN


def test_what_nobody_waits_for_is_limited_too_and_its_answers_make_room(wire: Wire, asks: Asks) -> None:
    for number in range(10):
        ended = JobAsks(f"{number}.1", asks)
        for _ in range(WINDOW):
            ended.tell(Verb.RECORDS, {"records": []})
        ended.close()
    assert len(wire.sent) == MOST_OPEN
    last = JobAsks("last.1", asks)
    waiting = last._begin(Verb.RECORDS, {"records": []})
    assert wire.of("last.1") == []
    answer(asks, wire.sent[0])
    answer(asks, wire.of("last.1")[0])
    assert waiting.answer.result(0) == WRITTEN


def test_the_window_has_room_for_so_many_bytes(wire: Wire, asks: Asks) -> None:
    job_asks = JobAsks("1.1", asks)
    body = {"records": ["x" * 3_000_000]}
    for _ in range(5):
        job_asks.tell(Verb.RECORDS, body)
    assert len(wire.sent) == 2
    assert wire.bytes <= MOST_OPEN_BYTES
    for number in range(5):
        answer(asks, wire.sent[number])
    assert len(wire.sent) == 5


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_who_waits_only_so_long_is_told_that_the_engine_has_not_answered(asks: Asks, kind: str) -> None:
    job_asks = JobAsks("1.1", asks)

    def ask() -> None:
        if kind == "thread":
            job_asks.ask(Verb.LEAVE, {}, 0.01)
        else:
            asyncio.run(job_asks.aask(Verb.LEAVE, {}, 0.01))

    with pytest.raises(StoreUnavailable, match=r"within 0\.01 s"):
        ask()
    job_asks.close()
    with pytest.raises(LeaseLost):
        job_asks.ask(Verb.LEAVE, {}, 0.01)
