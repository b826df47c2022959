"""Runners that live and start nothing: stopped by a signal, or with a reader that hangs."""

import signal

import httpx

from holdfast.domain.lifecycle import State
from tests.acceptance.command_line import InProcess
from tests.chaos.databases import query
from tests.remote.conftest import fleet
from tests.remote.fleet import Fleet
from tests.serve.grounds import new_token
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site, WorkerProcess

__all__ = ["fleet"]

LEASE = 1_000_000.0
STEP = 10.0  # the supervisor counts no longer pause of its own
TASKS = """
    @app.task
    def quick() -> str:
        return "ran"

    @app.task
    def hang_the_reader() -> None:
        from holdfast.runners.child.service import Service

        Service.handle = lambda self, frame: time.sleep(3600)

    @app.task
    async def wait_for_go() -> None:
        Path("waiting").write_text(str(os.getpid()))
        while not Path("go").exists():
            await asyncio.sleep(0.01)

    @app.task
    async def block_the_loop() -> None:
        Path("blocking").write_text(str(os.getpid()))
        while not Path("go").exists():
            time.sleep(0.01)

    @app.task
    async def beside() -> str:
        return "ran"
"""


def start(site: Site) -> tuple[WorkerProcess, LeaseClock]:
    clock = LeaseClock(site.folder / "clock")
    return site.worker("--processes", "1", "--heartbeat", "0.2s", program=clock.program), clock


def advance_until_said(worker: WorkerProcess, clock: LeaseClock, text: str) -> None:
    """Let the supervisor's minutes pass in steps of seconds."""

    def is_said() -> bool:
        clock.advance(STEP)
        return text in worker.text()

    wait_until(is_said, what=f"the worker says {text!r}")


def test_stopped_runner_is_killed_and_costs_one_job_a_crash(site: Site) -> None:
    site.tasks(TASKS)
    warm = site.enqueue_many("quick", 100, lease_seconds=LEASE)
    worker, clock = start(site)
    site.wait_for_counts(succeeded=len(warm))  # from here on the task is known as quick, and prefetched
    [runner] = [found for found in worker.runners() if "sync" in found.cmdline()]
    runner.send_signal(signal.SIGSTOP)
    jobs = site.enqueue_many("quick", 30, lease_seconds=LEASE)
    advance_until_said(worker, clock, "it did not start a job")
    site.wait_for_counts(succeeded=len(warm) + len(jobs))
    assert sorted(site.job(job_id).crashes for job_id in jobs) == [*[0] * 29, 1]
    assert site.charged() == (0, 1)


def test_runner_with_hung_reader_is_killed_and_its_job_runs_elsewhere(site: Site) -> None:
    site.tasks(TASKS)
    hangs = site.enqueue("hang_the_reader", lease_seconds=LEASE)
    worker, clock = start(site)
    site.wait_for_state(hangs, State.SUCCEEDED)
    job = site.enqueue("quick", lease_seconds=LEASE)
    advance_until_said(worker, clock, "it did not start a job")
    assert site.wait_for_state(job, State.SUCCEEDED).crashes == 1


def test_stopped_shared_runner_is_killed_and_charges_what_ran_in_it(site: Site) -> None:
    site.tasks(TASKS)
    running = site.enqueue("wait_for_go", lease_seconds=LEASE)
    worker, clock = start(site)
    [pid] = site.wait_for_pids("waiting")
    [runner] = [found for found in worker.runners() if found.pid == pid]
    runner.send_signal(signal.SIGSTOP)
    queued = site.enqueue("beside", lease_seconds=LEASE)
    site.tell("go")
    advance_until_said(worker, clock, "it did not start a job")
    assert site.wait_for_state(running, State.SUCCEEDED).crashes == 1
    job = site.wait_for_state(queued, State.SUCCEEDED)
    assert (job.crashes, job.failures) == (0, 0)


def test_blocked_event_loop_is_reported_and_not_killed(site: Site) -> None:
    site.tasks(TASKS)
    blocks = site.enqueue("block_the_loop", lease_seconds=LEASE)
    worker, clock = start(site)
    site.wait_for_file("blocking")
    queued = site.enqueue("beside", lease_seconds=LEASE)
    advance_until_said(worker, clock, "another one blocks it")
    site.tell("go")
    for job_id in (blocks, queued):
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert (job.attempt, job.crashes) == (1, 0)


def test_job_without_progress_past_its_limit_is_shown_by_the_command_the_api_and_the_dashboard(fleet: Fleet) -> None:
    job_id = fleet.enqueue("quick", timeout_seconds=5.0, lease_seconds=LEASE)
    [claimed] = fleet.store.claim("ann", 1, None, ["quick"])
    assert claimed.job_id == job_id
    earlier = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes')" if fleet.is_sqlite else "now() - interval '10 min'"
    query(fleet.url, f"UPDATE holdfast_jobs SET claimed_at = {earlier} WHERE id = '{job_id}'")
    [stuck] = InProcess(fleet.folder, fleet.url)("stuck", "--json").succeeded().document["stuck"]
    assert (stuck["job"]["id"], stuck["code"]) == (job_id, "over_limit")
    plane, token = fleet.plane(), new_token(fleet.store, "viewer")
    headers = {"Authorization": f"Bearer {token}"}
    shown = httpx.get(f"{plane.url}/api/v1/stuck", headers=headers, timeout=DEADLINE_SECONDS).json()["stuck"]
    assert [(found["job"]["id"], found["code"]) for found in shown] == [(job_id, "over_limit")]
    with httpx.Client(base_url=plane.url, follow_redirects=True, timeout=DEADLINE_SECONDS) as browser:
        page = browser.post("/sign-in", data={"token": token})
        assert page.status_code == 200
        assert "its time limit is over and its lease is still renewed" in browser.get("/").text
