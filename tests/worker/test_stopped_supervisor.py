"""A supervisor that was stopped past its leases finds out before it does anything else."""

import sqlite3
from contextlib import closing, suppress

import psutil

from holdfast.domain.lifecycle import State
from tests.chaos.databases import query, sqlite_path
from tests.servers.waiting import gone
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site, WorkerProcess

LEASE = 600.0
TASKS = """
    @app.task
    def long(name: str, ctx: Context) -> int:
        if ctx.attempt == 1:
            Path(name).write_text(str(os.getpid()))
            time.sleep(600)
        return ctx.attempt
"""


def test_a_worker_that_slept_past_its_lease_kills_its_runner_and_its_report_is_refused(site: Site) -> None:
    """One is stopped alone while its runner goes on, the other together with its runner."""
    site.tasks(TASKS)
    clock = LeaseClock(site.folder / "clock")
    (alone, alone_job), (together, together_job) = (start_sleeper(site, clock, name) for name in ("alone", "together"))
    [its_runner], [its_stopped_runner] = site.wait_for_pids("alone"), site.wait_for_pids("together")

    stopped = [alone.pid, together.pid, its_stopped_runner]
    site.wait(lambda: are_stopped(site, stopped), "all of them are stopped outside of any transaction")
    clock.advance(LEASE)
    site.take_leases(alone_job, together_job)
    site.worker("--processes", "1")
    for job_id in (alone_job, together_job):
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.result, job.attempt) == (2, 2)
    assert not gone(its_runner), "there is something left to be killed"
    assert not gone(its_stopped_runner)
    for pid in stopped:
        with suppress(psutil.NoSuchProcess):  # a supervisor that is awake may have killed its runner by now
            psutil.Process(pid).resume()

    for sleeper, job_id, runner in (
        (alone, alone_job, its_runner),
        (together, together_job, its_stopped_runner),
    ):
        site.wait_gone([runner], "the sleeper kills its runner")
        refusals = {(refused.attempt, refused.reason) for refused in site.wait_for_refusals(job_id)}
        assert refusals == {(1, "lease_lost")}
        assert_killed_before_it_asked_anybody(sleeper, job_id)
        assert site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]
        job = site.job(job_id)
        assert (job.state, job.result, job.crashes, job.failures) == (State.SUCCEEDED, 2, 1, 0)
        assert sleeper.stop() == 0, "and it is a worker like any other"


def start_sleeper(site: Site, clock: LeaseClock, name: str) -> tuple[WorkerProcess, str]:
    job_id = site.enqueue("long", {"name": name}, lease_seconds=LEASE, queue=name)
    return site.worker("--processes", "1", "--queues", name, program=clock.program), job_id


def are_stopped(site: Site, pids: list[int]) -> bool:
    """Stop them; if one was in a transaction, which would keep others from the store, let them go on."""
    processes = [psutil.Process(pid) for pid in pids]
    for process in processes:
        process.suspend()
    stopped = all(process.status() == psutil.STATUS_STOPPED for process in processes)
    if stopped and not is_in_transaction(site):
        return True
    for process in processes:
        process.resume()
    return False


def is_in_transaction(site: Site) -> bool:
    if not site.is_sqlite:
        busy = "datname = current_database() AND pid <> pg_backend_pid() AND state NOT IN ('idle')"
        return query(site.url, f"SELECT count(*) FROM pg_stat_activity WHERE {busy}") != [(0,)]
    with closing(sqlite3.connect(sqlite_path(site.url), timeout=0.0, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        file.execute("ROLLBACK")
    return False


def assert_killed_before_it_asked_anybody(sleeper: WorkerProcess, job_id: str) -> None:
    """Its own clock told it that the lease was over, and not the store."""
    said = [line["event"] for line in sleeper.lines() if line.get("job_id") == job_id]
    about_the_lease = [event for event in said if "lease" in event or "refused" in event]
    assert about_the_lease[0] == "lease cannot be confirmed any more", said
