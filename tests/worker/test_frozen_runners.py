"""Runners that live and start nothing: stopped by a signal, or with a reader that hangs."""

import signal
import sys

import httpx

from holdfast.domain.lifecycle import State
from tests.acceptance.command_line import InProcess
from tests.chaos.databases import query
from tests.remote.conftest import fleet
from tests.remote.fleet import Fleet
from tests.serve.grounds import new_token
from tests.worker.site import Site, WorkerProcess

__all__ = ["fleet"]

# The bounds of the real worker are minutes.
SHORT = """
import sys
from holdfast.cli import main
from holdfast.worker import starts
starts.CHECK_EVERY_SECONDS, starts.START_SECONDS, starts.SILENT_SECONDS = 0.2, 2.0, 2.0
sys.exit(main())
"""
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


def impatient_worker(site: Site, *flags: str) -> WorkerProcess:
    """A worker with bounds of seconds."""
    command = [sys.executable, "-c", SHORT, "--database", site.url, "worker", "tasks:app", *flags]
    log = site.folder / f"worker-{len(site.workers)}.log"
    worker = WorkerProcess([*command, "--log-level", "debug"], site.folder, site.environment(), log)
    site.workers.append(worker)
    return worker


def test_stopped_runner_is_killed_and_costs_one_job_a_crash(site: Site) -> None:
    site.tasks(TASKS)
    warm = site.enqueue_many("quick", 100)
    worker = impatient_worker(site, "--processes", "1")
    site.wait_for_counts(succeeded=len(warm), timeout=60.0)  # from here on the task is known as quick, and prefetched
    [runner] = [found for found in worker.runners() if "sync" in found.cmdline()]
    runner.send_signal(signal.SIGSTOP)
    jobs = site.enqueue_many("quick", 30)
    site.wait_for_counts(succeeded=len(warm) + len(jobs), timeout=120.0)
    assert sorted(site.job(job_id).crashes for job_id in jobs) == [*[0] * 29, 1]
    assert site.charged() == (0, 1)
    assert "it did not start a job" in worker.text()


def test_runner_with_hung_reader_is_killed_and_its_job_runs_elsewhere(site: Site) -> None:
    site.tasks(TASKS)
    hangs = site.enqueue("hang_the_reader")
    worker = impatient_worker(site, "--processes", "1")
    site.wait_for_state(hangs, State.SUCCEEDED, timeout=60.0)
    job = site.enqueue("quick")
    assert site.wait_for_state(job, State.SUCCEEDED, timeout=120.0).crashes == 1
    assert "it did not start a job" in worker.text()


def test_stopped_shared_runner_is_killed_and_charges_what_ran_in_it(site: Site) -> None:
    site.tasks(TASKS)
    running = site.enqueue("wait_for_go")
    worker = impatient_worker(site, "--processes", "1")
    [pid] = site.wait_for_pids("waiting", timeout=60.0)
    [runner] = [found for found in worker.runners() if found.pid == pid]
    runner.send_signal(signal.SIGSTOP)
    queued = site.enqueue("beside")
    site.tell("go")
    assert site.wait_for_state(running, State.SUCCEEDED, timeout=120.0).crashes == 1
    job = site.wait_for_state(queued, State.SUCCEEDED, timeout=60.0)
    assert (job.crashes, job.failures) == (0, 0)


def test_blocked_event_loop_is_reported_and_not_killed(site: Site) -> None:
    site.tasks(TASKS)
    blocks = site.enqueue("block_the_loop")
    worker = impatient_worker(site, "--processes", "1")
    site.wait_for_file("blocking", timeout=60.0)
    queued = site.enqueue("beside")
    worker.wait_for_log("another one blocks it", timeout=120.0)
    site.tell("go")
    for job_id in (blocks, queued):
        job = site.wait_for_state(job_id, State.SUCCEEDED, timeout=60.0)
        assert (job.attempt, job.crashes) == (1, 0)


def test_job_without_progress_past_its_limit_is_shown_by_the_command_the_api_and_the_dashboard(fleet: Fleet) -> None:
    job_id = fleet.enqueue("quick", timeout_seconds=5.0)
    [claimed] = fleet.store.claim("ann", 1, None, ["quick"])
    assert claimed.job_id == job_id
    earlier = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes')" if fleet.is_sqlite else "now() - interval '10 min'"
    query(fleet.url, f"UPDATE holdfast_jobs SET claimed_at = {earlier} WHERE id = '{job_id}'")
    [stuck] = InProcess(fleet.folder, fleet.url)("stuck", "--json").succeeded().document["stuck"]
    assert (stuck["job"]["id"], stuck["code"]) == (job_id, "over_limit")
    plane, token = fleet.plane(), new_token(fleet.store, "viewer")
    shown = httpx.get(f"{plane.url}/api/v1/stuck", headers={"Authorization": f"Bearer {token}"}).json()["stuck"]
    assert [(found["job"]["id"], found["code"]) for found in shown] == [(job_id, "over_limit")]
    with httpx.Client(base_url=plane.url, follow_redirects=True) as browser:
        page = browser.post("/sign-in", data={"token": token})
        assert page.status_code == 200
        assert "its time limit is over and its lease is still renewed" in browser.get("/").text
