"""A supervisor that was stopped past its leases finds out before it does anything else."""

import contextlib
import os
import signal

from holdfast.domain.lifecycle import State
from tests.servers.waiting import gone
from tests.worker.site import Site, WorkerProcess

LEASE = 2.0
TASKS = """
    @app.task
    def long(name: str, ctx: Context) -> int:
        if ctx.attempt == 1:
            Path(name).write_text(str(os.getpid()))
            time.sleep(60)
        return ctx.attempt
"""


def test_a_worker_that_slept_past_its_lease_kills_its_runner_and_its_report_is_refused(site: Site) -> None:
    """One is stopped alone while its runner goes on, the other together with its runner."""
    site.tasks(TASKS)
    (alone, alone_job), (together, together_job) = (start_sleeper(site, name) for name in ("alone", "together"))
    [its_runner], [its_stopped_runner] = site.wait_for_pids("alone"), site.wait_for_pids("together")
    other = site.worker("--processes", "1", LEASE_SECONDS=str(LEASE))
    other.wait_for_log('"after": "idle"')

    stopped = [alone.pid, together.pid, its_stopped_runner]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for job_id in (alone_job, together_job):
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.result, job.attempt) == (2, 2)
    assert not gone(its_runner), "there is something left to be killed"
    assert not gone(its_stopped_runner)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):  # a supervisor that is awake may have killed its runner by now
            os.kill(pid, signal.SIGCONT)

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


def start_sleeper(site: Site, name: str) -> tuple[WorkerProcess, str]:
    job_id = site.enqueue("long", {"name": name}, lease_seconds=LEASE, queue=name)
    return site.worker("--processes", "1", "--queues", name, LEASE_SECONDS=str(LEASE)), job_id


def assert_killed_before_it_asked_anybody(sleeper: WorkerProcess, job_id: str) -> None:
    """Its own clock told it that the lease was over, and not the store."""
    said = [line["event"] for line in sleeper.lines() if line.get("job_id") == job_id]
    about_the_lease = [event for event in said if "lease" in event or "refused" in event]
    assert about_the_lease[0] == "lease cannot be confirmed any more", said
