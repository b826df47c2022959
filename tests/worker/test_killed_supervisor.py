"""SIGKILL of a supervisor: its runners die with it, and its jobs come back after their leases, charged once."""

from datetime import UTC, datetime, timedelta

from holdfast.domain.lifecycle import State
from holdfast.worker.pace import MOST_PER_RUNNER, MOST_UNTOLD
from tests.worker.site import Site, seconds

LEASE = 2.0
REAP_PERIOD = LEASE / 6
POLL = 2.0
PATIENCE = 2.0  # for a busy machine: the bound itself is lease + reaper period + poll interval
PROCESSES = 2
QUICK_JOBS = 2000
TASKS = """
    @app.task
    def quick(): pass

    @app.task
    def long(ctx: Context) -> int:
        if ctx.attempt == 1:
            Path("long").write_text(str(os.getpid()))
            time.sleep(60)
        return ctx.attempt

    app.command("program", [
        "sh", "-c", '[ "$HOLDFAST_ATTEMPT" -gt 1 ] && exit 0; echo $$ > "$0/program"; exec sleep 60', os.getcwd()
    ])
"""


def test_its_runners_die_at_once_and_its_jobs_come_back_within_the_bound_charged_with_one_crash(site: Site) -> None:
    site.tasks(TASKS)
    started = [site.enqueue(task, lease_seconds=LEASE) for task in ("long", "program")]
    victim = site.worker("--processes", "3", LEASE_SECONDS=str(LEASE))
    program = site.wait_for_pids("program")
    processes = {*program, *site.wait_for_pids("long"), *(runner.pid for runner in victim.runners())}
    site.worker("--processes", "1", LEASE_SECONDS=str(LEASE)).wait_for_log('"after": "idle"')

    killed_at, killed = datetime.now(UTC), seconds()
    victim.kill()
    site.wait_gone(processes, "runners and programs have died with it", killed + 1.0 - seconds())

    bound = killed_at + timedelta(seconds=LEASE + REAP_PERIOD + POLL + PATIENCE)
    for job_id in started:
        job = site.wait_for_state(job_id, State.SUCCEEDED, timeout=15)
        assert (job.attempt, job.crashes, job.failures) == (2, 1, 0)
        assert site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]
        assert site.events(job_id)[3].at <= bound


def test_how_many_jobs_that_were_claimed_ahead_are_charged_with_it_is_bounded(site: Site) -> None:
    site.tasks(TASKS)
    reaper = site.worker("--processes", "1", "--queues", "none", LEASE_SECONDS=str(LEASE))
    victim = site.worker("--processes", str(PROCESSES), LEASE_SECONDS=str(LEASE))
    reaper.wait_for_log('"after": "idle"')
    site.enqueue_many("quick", QUICK_JOBS, lease_seconds=LEASE)
    bound = PROCESSES * (1 + MOST_PER_RUNNER) + MOST_UNTOLD

    def is_well_ahead() -> bool:
        counts = site.counts()
        running = counts.get("running", 0)
        # Also what has ended and is not reported yet would be charged.
        assert running <= bound, "a worker that is killed right now would be charged with more"
        return running > PROCESSES + 5 and counts.get("succeeded", 0) > QUICK_JOBS / 2

    site.wait(is_well_ahead, "some are claimed ahead")
    victim.kill()
    held = site.counts()["running"]
    assert PROCESSES < held <= bound
    site.wait(lambda: "running" not in site.counts(), "the leases are reaped")
    pending = site.store.jobs(states=[State.PENDING], limit=QUICK_JOBS // 2).items
    charged = [job for job in pending if job.crashes or job.failures]
    # A report that Postgres had received when its sender was killed may still have been committed.
    assert PROCESSES < len(charged) <= held
    # Not the attempt: a busy machine releases what was claimed ahead, and claims it again.
    assert {(job.crashes, job.failures) for job in charged} == {(1, 0)}
    assert site.counts() == {"succeeded": QUICK_JOBS - len(pending), "pending": len(pending)}, "nothing is lost"
