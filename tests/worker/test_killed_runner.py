"""A runner that dies takes nobody with it: its job is reported as crashed at once, and restarted."""

import os
import signal

import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.retry import RetryPolicy
from tests.servers.waiting import gone
from tests.worker.site import REAP_OFTEN, REAPER_LEASE_SECONDS, Site, patched

TASKS = """
    @app.task
    def kill_myself(ctx: Context) -> None:
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    @app.task
    def wait_to_be_killed(ctx: Context) -> None:
        if ctx.attempt == 1:
            Path("waiting").write_text(str(os.getpid()))
            time.sleep(600)

    @app.task
    def neighbour(ctx: Context) -> int:
        Path("neighbour").write_text(str(os.getpid()))
        while not Path("go").exists():
            time.sleep(0.02)
        return os.getpid()

    @app.task
    def segfault(): ctypes.string_at(0)

    @app.task
    def leave(): os._exit(3)

    @app.task
    def allocate_too_much():
        kept = [bytearray(10_000_000) for _ in range(40)]
        time.sleep(600)

    @app.task
    def kill_the_supervisor():
        with open("claims", "a") as file:
            file.write(f"{os.getppid()}\\n")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
"""
UNTOUCHED = ["enqueued", "claimed", "succeeded"]


def start_neighbour(site: Site) -> str:
    """A job that runs, in a runner of its own, until it is told to go."""
    job_id = site.enqueue("neighbour")
    site.wait_for_file("neighbour")
    return job_id


def assert_untouched(site: Site, job_id: str) -> None:
    site.tell("go")
    job = site.wait_for_state(job_id, State.SUCCEEDED)
    assert job.result == site.wait_for_pids("neighbour")[0]
    assert (job.attempt, site.event_names(job_id)) == (1, UNTOUCHED)


@pytest.mark.parametrize("processes", [1, 2])
def test_sigkill_is_reported_and_the_job_restarts(site: Site, processes: int) -> None:
    """By its own hand and from outside. No job comes back because its lease has expired: that is another event."""
    site.tasks(TASKS)
    site.worker("--processes", str(processes))
    neighbour = start_neighbour(site) if processes > 1 else None

    by_itself = site.enqueue("kill_myself")
    assert_restarted(site, by_itself)

    from_outside = site.enqueue("wait_to_be_killed")
    [runner] = site.wait_for_pids("waiting")
    os.kill(runner, signal.SIGKILL)
    assert_restarted(site, from_outside)
    if neighbour is not None:
        assert_untouched(site, neighbour)


def assert_restarted(site: Site, job_id: str) -> None:
    job = site.wait_for_state(job_id, State.SUCCEEDED)
    assert site.event_names(job_id) == ["enqueued", "claimed", "crashed", "claimed", "succeeded"]
    assert (job.attempt, job.crashes, job.failures) == (2, 1, 0)
    first = site.store.attempts(job_id)[0]
    assert (first.outcome, first.signal, first.exit_code) == ("crashed", 9, None)


def test_a_task_that_crashes_or_eats_all_memory_takes_only_its_own_runner_with_it(site: Site) -> None:
    site.tasks(TASKS)
    worker = site.worker("--processes", "2", "--max-memory", "200MB")
    neighbour = start_neighbour(site)
    tasks = ("segfault", "leave", "allocate_too_much")
    segfault, leave, allocate = (site.enqueue(task, max_attempts=1) for task in tasks)
    for job_id in (segfault, leave, allocate):
        job = site.wait_for_state(job_id, State.FAILED)
        assert (job.crashes, job.failures, site.claims(job_id)) == (1, 0, 1)
        assert job.last_error is not None
        assert job.last_error["code"] == "worker_lost"
    ends = {job_id: site.store.attempts(job_id)[0] for job_id in (segfault, leave, allocate)}
    assert (ends[segfault].signal, ends[segfault].exit_code) == (int(signal.SIGSEGV), None)
    assert (ends[leave].signal, ends[leave].exit_code) == (None, 3)
    assert ends[allocate].signal == int(signal.SIGKILL)
    assert "out of memory" in str(ends[allocate].error)
    assert worker.running
    assert_untouched(site, neighbour)


def test_a_task_that_kills_its_supervisor_is_dead_lettered_after_exactly_max_crashes(site: Site) -> None:
    site.tasks(TASKS)
    site.tasks("@app.task\ndef other(): pass", name="others")
    bystander = site.worker(
        "--processes",
        "1",
        app="others:app",
        program=patched(REAP_OFTEN),
        LEASE_SECONDS=f"{REAPER_LEASE_SECONDS:.0f}",
    )
    retry = RetryPolicy("fixed", base=0.1, jitter=0.0)
    job_id = site.enqueue("kill_the_supervisor", max_attempts=10, max_crashes=3, retry=retry)
    for claim in (1, 2, 3):
        victim = site.worker("--processes", "1")
        assert victim.wait() == -signal.SIGKILL
        assert site.claims(job_id) == claim
        site.expire_leases(job_id)
    site.wait_for_state(job_id, State.FAILED)
    job = site.job(job_id)
    assert (job.state, job.crashes, job.failures, job.attempt) == (State.FAILED, 3, 0, 3)
    assert job.last_error is not None
    assert job.last_error["code"] == "worker_lost"
    lost = ["claimed", "lease_lost"] * 2
    assert site.event_names(job_id) == ["enqueued", *lost, "claimed", "failed"]
    assert (site.events(job_id)[-1].detail or {})["reason"] == "worker_lost"
    assert len(set(site.wait_for_pids("claims"))) == 3
    assert bystander.running


SHARED = """
    def wait_until_told():
        while not Path("go").exists():
            time.sleep(0.02)

    @app.task
    def innocent():
        # Threads of one process write in turn: a line each, in one system call.
        with open("innocents", "a") as file:
            file.write(f"{os.getpid()}\\n")
        wait_until_told()

    @app.task
    def stubborn():
        time.sleep(600)

    @app.task
    def leave():
        while not Path("leave").exists():
            time.sleep(0.02)
        os._exit(3)
"""


def start_shared(site: Site, task: str, timeout: float | None = None) -> tuple[str, list[str]]:
    """One runner of four slots: three innocents, and then the job of this task."""
    site.tasks(SHARED)
    innocents = site.enqueue_many("innocent", 3)
    site.worker("--processes", "1", "--slots", "4")
    site.wait(lambda: len(site.wait_for_pids("innocents")) == 3, "the innocents have started")
    return site.enqueue(task, max_attempts=1, timeout_seconds=timeout), innocents


def test_when_a_shared_runner_is_killed_for_one_jobs_time_limit_the_others_are_released_without_charge(
    sqlite_site: Site,
) -> None:
    """To wait for the grace takes long, and each kind of database is told the same as in the other tests: once."""
    site = sqlite_site
    guilty, innocents = start_shared(site, "stubborn", timeout=1.0)
    job = site.wait_for_state(guilty, State.FAILED)
    assert (job.last_error or {})["code"] == "timeout"
    assert (job.failures, job.crashes) == (1, 0)
    site.tell("go")
    for job_id in innocents:
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.attempt, job.failures, job.crashes) == (2, 0, 0)
        assert site.event_names(job_id) == ["enqueued", "claimed", "released", "claimed", "succeeded"]
    first, *_, last = site.wait_for_pids("innocents")
    assert first != last
    assert gone(first)


def test_when_a_shared_runner_dies_by_itself_all_that_had_started_in_it_are_charged(site: Site) -> None:
    """Nobody knows which of them did it. What only lay queued there did not."""
    guilty, innocents = start_shared(site, "leave")
    site.wait_for_event(guilty, "claimed")
    site.tell("leave")
    site.wait_for_state(guilty, State.FAILED)
    site.tell("go")
    for job_id in innocents:
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.attempt, job.failures, job.crashes) == (2, 0, 1)
        assert site.event_names(job_id) == ["enqueued", "claimed", "crashed", "claimed", "succeeded"]
        assert site.store.attempts(job_id)[0].exit_code == 3
