"""SIGKILL of a supervisor: its runners die with it, and its jobs come back after their leases, charged once."""

import psutil

from holdfast.domain.lifecycle import State
from holdfast.worker.pace import MOST_PER_RUNNER, MOST_UNTOLD
from tests.chaos.databases import query
from tests.worker.site import REAP_OFTEN, REAPER_LEASE_SECONDS, Site, patched

PROCESSES = 2
QUICK_JOBS = 2000
TASKS = """
    @app.task
    def quick(): pass

    @app.task
    def long(ctx: Context) -> int:
        if ctx.attempt == 1:
            Path("long").write_text(str(os.getpid()))
            time.sleep(600)
        return ctx.attempt

    app.command("program", [
        "sh", "-c", '[ "$HOLDFAST_ATTEMPT" -gt 1 ] && exit 0; echo $$ > "$0/program"; exec sleep 600', os.getcwd()
    ])
"""


def test_its_runners_die_at_once_and_its_jobs_come_back_within_the_bound_charged_with_one_crash(site: Site) -> None:
    site.tasks(TASKS)
    started = [site.enqueue(task, lease_seconds=3600.0) for task in ("long", "program")]
    victim = site.worker("--processes", "3")
    program = site.wait_for_pids("program")
    processes = {*program, *site.wait_for_pids("long"), *(runner.pid for runner in victim.runners())}
    reaper = site.worker("--processes", "1", program=patched(REAP_OFTEN), LEASE_SECONDS=f"{REAPER_LEASE_SECONDS:.0f}")
    reaper.wait_for_log('"after": "idle"')

    victim.kill()
    site.wait_gone(processes, "runners and programs have died with it")
    assert {site.job(job_id).state for job_id in started} == {State.RUNNING}, "nothing but a lease brings them back"

    site.expire_leases(*started)
    for job_id in started:
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.attempt, job.crashes, job.failures) == (2, 1, 0)
        assert site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]


def test_how_many_jobs_that_were_claimed_ahead_are_charged_with_it_is_bounded(site: Site) -> None:
    site.tasks(TASKS)
    victim = site.worker("--processes", str(PROCESSES))
    jobs = site.enqueue_many("quick", QUICK_JOBS)
    bound = PROCESSES * (1 + MOST_PER_RUNNER) + MOST_UNTOLD
    while not stopped_well_ahead(site, victim.pid, bound):
        psutil.Process(victim.pid).resume()
        if site.counts().get("pending", 0) < QUICK_JOBS / 2:  # this process may have been slower than the worker
            jobs += site.enqueue_many("quick", QUICK_JOBS)
        done = site.counts().get("succeeded", 0)
        site.wait(lambda done=done: site.counts().get("succeeded", 0) > done, "more jobs have run")  # type: ignore[misc]
    held = site.counts()["running"]
    victim.kill()
    site.expire_leases(*ids(site, "state = 'running'"))

    def is_reaped() -> bool:
        site.reap()
        return "running" not in site.counts()

    site.wait(is_reaped, "the leases are reaped")
    charged = [site.job(job_id) for job_id in ids(site, "crashes > 0 OR failures > 0")]
    # A report that Postgres had received when its sender was killed may still have been committed.
    assert PROCESSES < len(charged) <= held
    # Not the attempt: a busy machine releases what was claimed ahead, and claims it again.
    assert {(job.crashes, job.failures) for job in charged} == {(1, 0)}
    pending_count = site.counts()["pending"]
    assert site.counts() == {"succeeded": len(jobs) - pending_count, "pending": pending_count}, "nothing is lost"


def stopped_well_ahead(site: Site, pid: int, bound: int) -> bool:
    """Stop the supervisor, so that what it holds does not change any more."""
    process = psutil.Process(pid)
    process.suspend()
    site.wait(lambda: process.status() == psutil.STATUS_STOPPED, "the supervisor is stopped")
    running = site.counts().get("running", 0)
    assert running <= bound, "a worker that is killed right now would be charged with more"
    return running > PROCESSES + 5


def ids(site: Site, condition: str) -> list[str]:
    return [str(row[0]) for row in query(site.url, f"SELECT id FROM holdfast_jobs WHERE {condition}")]
