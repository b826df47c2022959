"""Whatever a task does to its own process, the lease is renewed by another one: the supervisor."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Report
from tests.worker.site import Site

LEASE = 2.0
BLOCKED = 3 * LEASE + 0.5
TASKS = """
    import threading

    @app.task
    def hold_the_gil(seconds: float) -> float:
        '''One C call that keeps the GIL. Returns the longest time for which no other thread of this process ran.'''
        longest, before, stop = 0.0, time.monotonic(), False

        def look():
            nonlocal longest, before
            while not stop:
                now = time.monotonic()
                longest, before = max(longest, now - before), now
                time.sleep(0.01)

        thread = threading.Thread(target=look)
        thread.start()
        say_where("hold_the_gil")
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # a PyDLL does not let go of the GIL
        time.sleep(0.05)
        stop = True
        thread.join()
        return longest

    @app.task
    async def block_the_loop(seconds: float) -> float:
        '''Returns the longest time for which no other coroutine of this process ran.'''
        longest, before = 0.0, time.monotonic()

        async def look():
            nonlocal longest, before
            while True:
                now = time.monotonic()
                longest, before = max(longest, now - before), now
                await asyncio.sleep(0.01)

        looking = asyncio.create_task(look())
        await asyncio.sleep(0.05)
        say_where("block_the_loop")
        time.sleep(seconds)
        await asyncio.sleep(0.05)
        looking.cancel()
        return longest

    def say_where(name):
        Path(name).write_text(str(os.getpid()))
"""
CONTROL = "control"
# Where the heartbeat of the control lives: where the task does not let it live.
BESIDE = {"hold_the_gil": "thread", "block_the_loop": "coroutine"}


def test_a_task_that_blocks_its_process_for_three_leases_keeps_its_lease(site: Site) -> None:
    """With a control: the same tasks in processes that renew the lease themselves lose it, to the same reaper."""
    site.tasks(TASKS)
    jobs = {name: site.enqueue(name, {"seconds": BLOCKED}, lease_seconds=LEASE) for name in BESIDE}
    control = {name: site.enqueue(name, {"seconds": 60.0}, lease_seconds=LEASE, queue=CONTROL) for name in BESIDE}
    site.worker("--processes", "1", "--queues", "default", LEASE_SECONDS=str(LEASE))
    with contextlib.ExitStack() as stack:
        for name, beside in BESIDE.items():
            stack.enter_context(beating_from_within(site, name, beside))
        for name in BESIDE:
            site.wait_for_file(name)
        envious = site.worker("--processes", "1", "--queues", "default", LEASE_SECONDS=str(LEASE))
        envious.wait_for_log('"after": "idle"')  # it has looked for work, and goes on looking and reaping
        for name, job_id in control.items():
            attempt = int(site.wait_for_file(f"{name}.beating").read_text())
            assert_another_can_have_it(site, job_id, attempt)

    for name, job_id in jobs.items():
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert job.result > 3 * LEASE, "it did not block its process: nothing is shown"
        assert (job.attempt, site.event_names(job_id)) == (1, ["enqueued", "claimed", "succeeded"]), name
    assert envious.running


def assert_another_can_have_it(site: Site, job_id: str, attempt: int) -> None:
    site.wait(lambda: ("lease_lost", attempt) in happened(site, job_id), "the lease is lost", timeout=3 * LEASE)
    claims: list[Claimed | None] = []

    def claimed() -> bool:
        """Not at once, where the lease had been lost before."""
        claims.append(site.store.claim_job("another", job_id, lease_seconds=LEASE))
        return claims[-1] is not None

    site.wait(claimed, "another has claimed it")
    second = claims[-1]
    assert second is not None
    assert second.attempt == attempt + 1
    site.store.settle([Report(job_id, second.attempt, second.lease_token, Cancelled("seen enough"), "another")])


def happened(site: Site, job_id: str) -> list[tuple[str, int]]:
    return [(found.event, found.attempt) for found in site.events(job_id)]


@contextlib.contextmanager
def beating_from_within(site: Site, task: str, beside: str) -> Iterator[None]:
    script = Path(__file__).with_name("beating_from_within.py")
    environment = site.environment(PYTHONPATH=str(site.folder))
    process = subprocess.Popen(
        [sys.executable, str(script), site.url, CONTROL, task, beside], cwd=site.folder, env=environment
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
