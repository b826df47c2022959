"""Whatever a task does to its own process, the lease is renewed by another one: the supervisor."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Report
from tests.worker.site import Site

LEASE = 3.0  # of the control
TASKS = """
    import threading

    @app.task
    def hold_the_gil(until: str) -> int:
        '''One C call that keeps the GIL. Returns how often another thread of this process ran meanwhile.'''
        ticks = 0

        def tick():
            nonlocal ticks
            while ticks >= 0:
                ticks += 1
                time.sleep(0.01)

        threading.Thread(target=tick, daemon=True).start()
        file = os.open(until, os.O_RDWR)
        sys.setswitchinterval(600)  # between the next lines no other thread runs
        Path("hold_the_gil").write_text(str(os.getpid()))
        before = ticks
        ctypes.PyDLL(None).read(file, ctypes.create_string_buffer(1), 1)  # a PyDLL does not let go of the GIL
        return ticks - before

    @app.task
    async def block_the_loop(until: str) -> int:
        '''Returns how often another coroutine of this process ran meanwhile.'''
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.05)
        Path("block_the_loop").write_text(str(os.getpid()))
        before = ticks
        os.read(os.open(until, os.O_RDWR), 1)
        ticking.cancel()
        return ticks - before
"""
CONTROL = "control"
# Where the heartbeat of the control lives: where the task does not let it live.
BESIDE = {"hold_the_gil": "thread", "block_the_loop": "coroutine"}


def test_a_task_that_blocks_its_process_keeps_its_lease(site: Site) -> None:
    """It is renewed again and again meanwhile.

    With a control: the same tasks in processes that renew the lease themselves lose it, to the same reaper."""
    site.tasks(TASKS)
    jobs, control = {}, {}
    for name in BESIDE:
        for end in ("go", "never"):
            os.mkfifo(site.folder / f"{name}.{end}")
        jobs[name] = site.enqueue(name, {"until": f"{name}.go"})
        control[name] = site.enqueue(name, {"until": f"{name}.never"}, lease_seconds=LEASE, queue=CONTROL)
    site.worker("--processes", "1", "--queues", "default", "--heartbeat", "0.2s")
    for name in BESIDE:
        site.wait_for_file(name)
    with contextlib.ExitStack() as stack:
        for name, beside in BESIDE.items():
            stack.enter_context(beating_from_within(site, name, beside))
        for name, job_id in control.items():
            attempt = int(site.wait_for_file(f"{name}.beating").read_text())
            assert_another_can_have_it(site, job_id, attempt)

    for job_id in jobs.values():
        site.wait_for_heartbeats(job_id, 3)
    assert site.store.claim("envious", 10, ("default",)) == []
    for name, job_id in jobs.items():
        (site.folder / f"{name}.go").write_bytes(b"x")
        job = site.wait_for_state(job_id, State.SUCCEEDED)
        assert job.result == 0, "it did not block its process: nothing is shown"
        assert (job.attempt, site.event_names(job_id)) == (1, ["enqueued", "claimed", "succeeded"]), name


def assert_another_can_have_it(site: Site, job_id: str, attempt: int) -> None:
    def is_lost() -> bool:
        site.reap()
        return ("lease_lost", attempt) in happened(site, job_id)

    site.wait(is_lost, "the lease is lost")
    claims: list[Claimed | None] = []

    def claimed() -> bool:
        """Not at once, where the lease had been lost before."""
        claims.append(site.store.claim_job("another", job_id, lease_seconds=60.0))
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
