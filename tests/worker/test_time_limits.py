"""A time limit ends what runs under it: politely first, and after five seconds with everything it ever started."""

import sys
from textwrap import dedent
from typing import Any

from holdfast.domain.lifecycle import State
from tests.servers.waiting import gone
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site

LIMIT = 6000.0
LEASE = 2 * LIMIT
# A program, and what the tasks import: ignore TERM, leave a daemon in a session of its own that does the same and
# keeps stdout open, and write down who they are.
STUBBORN = """
import os, signal, sys, time

def dig_in(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write_end, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    daemon = int(os.read(read_end, 20))
    os.wait()
    with open(f"{name}.new", "w") as file:
        file.write(f"{os.getpid()} {daemon}")
    os.rename(f"{name}.new", name)

if __name__ == "__main__":
    os.chdir(os.path.dirname(__file__))
    dig_in("command")
    print("has started", flush=True)
    while True:
        time.sleep(600)
"""
NAMES = ("function", "coroutine", "command")


def enqueue_limited(site: Site, task: str, payload: dict[str, Any] | None = None) -> str:
    """The lease is longer than the time limit, which is reached by moving the worker's clock."""
    return site.enqueue(task, payload, timeout_seconds=LIMIT, lease_seconds=LEASE, max_attempts=1)


def wait_until_started(site: Site, *jobs: str) -> None:
    """A line of its log has come the way that the start of the job came before it."""
    site.wait(lambda: all(site.store.count_logs(job) > 0 for job in jobs), "the worker counts the time of each job")


def test_what_ignores_term_and_hides_a_daemon_is_gone_with_it_within_the_limit_and_the_grace(site: Site) -> None:
    (site.folder / "stubborn.py").write_text(STUBBORN)
    site.tasks(f"""
        import stubborn

        @app.task
        def function():
            stubborn.dig_in("function")
            print("has started", flush=True)
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    pass

        @app.task
        async def coroutine():
            stubborn.dig_in("coroutine")
            print("has started", flush=True)
            while True:
                try:
                    await asyncio.sleep(600)
                except BaseException:
                    pass

        app.command("command", [{sys.executable!r}, {str(site.folder / "stubborn.py")!r}])
    """)
    clock = LeaseClock(site.folder / "clock")
    worker = site.worker("--processes", "2", program=clock.program)
    jobs = {name: enqueue_limited(site, name) for name in NAMES}
    processes = [pid for name in NAMES for pid in site.wait_for_pids(name)]
    wait_until_started(site, *jobs.values())
    assert len(set(processes)) == 6
    assert not any(gone(pid) for pid in processes), "they are all there"
    clock.advance(LIMIT)
    site.wait_gone(processes, "they and their daemons are gone")
    for name, job_id in jobs.items():
        job = site.wait_for_state(job_id, State.FAILED)
        assert job.last_error is not None
        assert (name, job.last_error["code"]) == (name, "timeout")
        assert (job.failures, job.crashes) == (1, 0)
        assert site.event_names(job_id) == ["enqueued", "claimed", "failed"]
        [attempt] = site.store.attempts(job_id)
        assert (attempt.outcome, attempt.signal) == ("failed", None)
    assert worker.running


POLITE = """
    class Enough(Exception):
        pass

    def on_term():
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append("TERM"))
        print("has started", flush=True)
        return told

    @app.task
    def function_that_stops():
        told = on_term()
        while not told:
            time.sleep(0.02)
        raise Enough

    @app.task
    def function_that_finishes():
        told = on_term()
        while not told:
            time.sleep(0.02)
        return "finished"

    @app.task
    async def coroutine_that_stops():
        print("has started", flush=True)
        await asyncio.sleep(600)

    @app.task
    async def coroutine_that_finishes():
        print("has started", flush=True)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "finished"

    script = "trap 'echo told >&2; exit 1' TERM; echo has started; sleep 600 & wait"
    app.command("command_that_stops", ["sh", "-c", script])
"""


def test_what_stops_when_it_is_told_has_failed_and_what_finishes_in_the_grace_has_succeeded(site: Site) -> None:
    site.tasks(POLITE)
    clock = LeaseClock(site.folder / "clock")
    worker = site.worker("--processes", "3", program=clock.program)
    stopping = [
        enqueue_limited(site, task) for task in ("function_that_stops", "coroutine_that_stops", "command_that_stops")
    ]
    finishing = [enqueue_limited(site, task) for task in ("function_that_finishes", "coroutine_that_finishes")]
    wait_until_started(site, *stopping, *finishing)
    clock.freeze()  # so that the grace does not end
    clock.advance(LIMIT)
    for job_id in stopping:
        job = site.wait_for_state(job_id, State.FAILED)
        assert job.last_error is not None
        assert (job.last_error["code"], job.failures, job.crashes) == ("timeout", 1, 0)
    for job_id in finishing:
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.result, job.attempt) == ("finished", 1)
    assert_nobody_was_killed(site, [*stopping, *finishing])
    assert worker.running


def test_in_a_shared_runner_a_function_sees_that_its_time_is_up_and_its_neighbours_go_on(site: Site) -> None:
    site.tasks(
        dedent("""
        @app.task
        def careful(fails: bool, ctx: Context) -> str:
            print("has started", flush=True)
            ctx.wait_cancelled(600)
            if fails:
                raise RuntimeError(f"stopped for {ctx.cancel_reason}")
            return ctx.cancel_reason

        @app.task
        def neighbour() -> int:
            Path("neighbour").write_text(str(os.getpid()))
            while not Path("go").exists():
                time.sleep(0.02)
            return os.getpid()
    """)
    )
    neighbour = site.enqueue("neighbour", lease_seconds=LEASE)
    clock = LeaseClock(site.folder / "clock")
    site.worker("--processes", "1", "--slots", "4", "--heartbeat", "0.2s", program=clock.program)
    stops, finishes = (enqueue_limited(site, "careful", {"fails": fails}) for fails in (True, False))
    wait_until_started(site, stops, finishes)
    clock.freeze()  # so that the grace does not end
    clock.advance(LIMIT)
    assert (site.wait_for_state(stops, State.FAILED).last_error or {})["code"] == "timeout"
    assert site.wait_for_state(finishes, State.SUCCEEDED).result == "timeout"
    assert_nobody_was_killed(site, [stops, finishes])
    site.tell("go")
    job = site.wait_for_state(neighbour, State.SUCCEEDED)
    assert ([job.result], job.attempt) == (site.wait_for_pids("neighbour"), 1)


def assert_nobody_was_killed(site: Site, jobs: list[str]) -> None:
    """They ended by themselves."""
    for job_id in jobs:
        [attempt] = site.store.attempts(job_id)
        assert attempt.max_rss_kb is not None, "the runner itself has said how it ended"
