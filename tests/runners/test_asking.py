"""A runner whose supervisor is slow to answer: who waits can be stopped, and who is answered goes on."""

from pathlib import Path

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
        time.sleep(0.2)
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
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
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
    wait_until((tmp_path / "late").exists, what="the thread that was left behind is told")
    assert not runner.heard("ask", id="4.1")


def test_a_signal_handler_may_ask_too(start: Start) -> None:
    runner = start(TASKS).ready()
    runner.run(job(1, "interrupted"))
    answered = 0
    while not runner.heard("done"):
        for ask in runner.heard("ask")[answered:]:
            runner.send("answer", id="1.1", number=ask["number"], value=WRITTEN)
            answered += 1
    assert "answered" in runner.outcome("1.1")["result"]


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
