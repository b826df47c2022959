"""Cancelling a job that runs: it is told, and if it does not listen, it is stopped."""

import signal

from holdfast.domain.lifecycle import State
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site

LEASE = 6000.0
GRACE = 1000.0
# A cancel is seen with the next heartbeat.
FLAGS = ("--heartbeat", "0.2s", "--grace", f"{GRACE:g}s")
TASKS = """
    def here(name):
        Path(name).write_text(str(os.getpid()))

    def told(name, how):
        Path(f"{name}.told").write_text(how)

    @app.task
    def polite_function(ctx: Context):
        here("polite_function")
        while not ctx.cancelled:
            time.sleep(0.02)
        told("polite_function", ctx.cancel_reason)
        raise Cancel("as I was told")

    @app.task
    async def polite_coroutine():
        here("polite_coroutine")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            told("polite_coroutine", "cancelled")
            raise

    @app.task
    def stubborn_function(ctx: Context):
        here("stubborn_function")
        while not ctx.cancelled:
            time.sleep(0.02)
        told("stubborn_function", ctx.cancel_reason)
        time.sleep(600)

    @app.task
    async def stubborn_coroutine():
        here("stubborn_coroutine")
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                told("stubborn_coroutine", "cancelled")

    for name in ("polite_command", "stubborn_command"):
        app.command(name, [sys.executable, str(Path("program.py").absolute()), name])
"""
PROGRAM = """
import os, signal, sys, time
from pathlib import Path

name = sys.argv[1]
here = Path(__file__).with_name(name)

def stop(*_):
    here.with_name(f"{name}.told").write_text("TERM")
    if name == "polite_command":
        sys.exit(1)

signal.signal(signal.SIGTERM, stop)
here.write_text(str(os.getpid()))
while True:
    time.sleep(60)
"""
POLITE = {"polite_function": "cancel_requested", "polite_coroutine": "cancelled", "polite_command": "TERM"}
STUBBORN = {"stubborn_function": "cancel_requested", "stubborn_coroutine": "cancelled", "stubborn_command": "TERM"}


def write_tasks(site: Site) -> None:
    site.tasks(TASKS)
    (site.folder / "program.py").write_text(PROGRAM)


def test_what_listens_stops_by_itself_and_what_does_not_is_killed_after_the_grace(site: Site) -> None:
    write_tasks(site)
    clock = LeaseClock(site.folder / "clock")
    jobs = {name: site.enqueue(name, lease_seconds=LEASE) for name in (*POLITE, *STUBBORN)}
    worker = site.worker("--processes", "4", *FLAGS, program=clock.program, LEASE_SECONDS=f"{LEASE:g}")
    processes = {name: site.wait_for_pids(name) for name in jobs}
    site.store.cancel(list(jobs.values()))
    for name, how in (POLITE | STUBBORN).items():
        assert site.wait_for_file(f"{name}.told").read_text() == how
    for name in POLITE:
        site.wait_for_state(jobs[name], State.CANCELLED)
    for name in STUBBORN:
        assert site.job(jobs[name]).state is State.RUNNING, "it is still in its grace"
    clock.advance(GRACE)
    for name, job_id in jobs.items():
        job = site.wait_for_state(job_id, State.CANCELLED)
        assert (name, job.attempt, job.failures, job.crashes) == (name, 1, 0, 0)
        assert site.event_names(job_id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]
        [attempt] = site.store.attempts(job_id)
        was_killed = attempt.max_rss_kb is None  # a runner that is killed has no last word
        assert was_killed == (name in STUBBORN), name
    site.wait_gone((pid for name in STUBBORN for pid in processes[name]), "the stubborn ones are gone")
    assert worker.running


def test_a_job_can_be_cancelled_while_its_worker_drains(site: Site) -> None:
    """The worker ends with its last job, and does not wait for the end of the grace."""
    write_tasks(site)
    jobs = {name: site.enqueue(name, lease_seconds=LEASE) for name in POLITE}
    worker = site.worker("--processes", "2", *FLAGS, LEASE_SECONDS=f"{LEASE:g}")
    for name in jobs:
        site.wait_for_file(name)
    worker.send(signal.SIGTERM)
    worker.wait_for_log('"after": "draining"')
    site.store.cancel(list(jobs.values()))
    assert worker.wait() == 0
    for job_id in jobs.values():
        assert site.job(job_id).state is State.CANCELLED
        assert site.event_names(job_id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]
