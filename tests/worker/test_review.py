"""What a review of the worker found, with real processes: each of these was wrong once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.domain.lifecycle import State
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site


def test_progress_that_cannot_be_stored_costs_nobody_a_lease(sqlite_site: Site) -> None:
    """One heartbeat carries the progress of all jobs; one job that says too much must not make it fail."""
    site = sqlite_site
    site.tasks("""
        @app.task
        def noisy(ctx: Context):
            number = 0
            while not Path("over").exists():
                number += 1
                ctx.progress(number, note="x" * 10_000)
                time.sleep(0.05)

        @app.task
        def neighbour():
            while not Path("over").exists():
                time.sleep(0.02)
    """)
    jobs = [site.enqueue(task) for task in ("noisy", "noisy", "noisy", "neighbour")]
    worker = site.worker("--processes", "4", "--heartbeat", "0.2s")
    for job in jobs:
        site.wait_for_state(job, State.RUNNING)
    for job in jobs:
        site.wait_for_heartbeats(job, 3)
    site.tell("over")
    for job in jobs:
        site.wait_for_state(job, State.SUCCEEDED)
        assert site.event_names(job) == ["enqueued", "claimed", "succeeded"]
    assert worker.running


def test_a_runner_that_dies_of_a_signal_without_a_name_is_reported(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task
        def strange():
            os.kill(os.getpid(), 40)
    """)
    job = site.enqueue("strange", max_crashes=1)
    site.drain("--processes", "1")
    assert site.job(job).state is State.FAILED


def test_garbage_from_a_runner_ends_that_runner_only(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task
        def garbage():
            fd = int(sys.argv[sys.argv.index("--fd") + 1])
            os.write(fd, b"what is this\\n")
            time.sleep(600)

        @app.task
        def neighbour():
            while not Path("go").exists():
                time.sleep(0.02)
    """)
    bad = site.enqueue("garbage", max_crashes=1)
    good = site.enqueue("neighbour")
    worker = site.worker("--drain", "--processes", "2")
    site.wait_for_state(bad, State.FAILED)
    site.tell("go")
    assert worker.wait() == 0
    assert site.event_names(good) == ["enqueued", "claimed", "succeeded"]


@pytest.mark.parametrize("flags", [("--slots", "1"), ("--slots", "2")])
def test_an_outcome_that_json_cannot_hold_ends_the_job(sqlite_site: Site, flags: tuple[str, str]) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task
        def plain():
            raise Cancel(ValueError("no text"))

        @app.task
        async def coroutine():
            raise Cancel(ValueError("no text"))

        @app.task
        def large():
            raise Permanent("x" * 20_000_000)
    """)
    jobs = [site.enqueue(task) for task in ("plain", "coroutine", "large")]
    site.drain("--processes", "1", *flags)
    assert [site.job(job).state for job in jobs] == [State.FAILED] * 3
    assert site.charged() == (3, 0)


LIMIT = 6000.0


def test_the_successor_of_a_job_that_ended_in_time_is_left_alone(sqlite_site: Site) -> None:
    """The supervisor stands still while one job ends and the next begins; then the limit of the first has passed.

    A job stops the supervisor when another one lies ready in its runner. If that one is given back nevertheless, the
    supervisor goes on, and a later job tries again.
    """
    site = sqlite_site
    site.tasks("""
        import threading
        from holdfast.runners.child.inbox import Inbox

        is_stopped, inboxes = threading.Event(), []
        take_next = Inbox._next

        def keep_and_take_next(self):
            inboxes[:] = [self]
            return take_next(self)

        Inbox._next = keep_and_take_next

        def resume_when_idle():
            while is_stopped.is_set():
                with inboxes[0]._lock:
                    is_idle = not inboxes[0]._queue and not inboxes[0]._active
                if is_idle:
                    is_stopped.clear()
                    os.kill(os.getppid(), signal.SIGCONT)
                time.sleep(0.01)

        def be_the_successor(number):
            is_stopped.clear()
            Path("successor").write_text(str(number))
            while not Path("continue").exists():
                time.sleep(0.02)
            os.kill(os.getppid(), signal.SIGCONT)
            while not Path("finish").exists():
                time.sleep(0.02)

        @app.task
        def step(number: int):
            if is_stopped.is_set():
                be_the_successor(number)
            elif number > 100 and not Path("successor").exists() and inboxes[0]._queue:
                time.sleep(0.02)  # so that its start is heard
                is_stopped.set()
                os.kill(os.getppid(), signal.SIGSTOP)
                threading.Thread(target=resume_when_idle).start()
    """)
    clock = LeaseClock(site.folder / "clock")
    jobs = [
        site.enqueue("step", {"number": number}, timeout_seconds=LIMIT, lease_seconds=2 * LIMIT)
        for number in range(500)
    ]
    worker = site.worker("--drain", "--processes", "1", "--heartbeat", "0.2s", program=clock.program)
    successor = jobs[int(site.wait_for_file("successor").read_text())]
    clock.advance(LIMIT)
    site.tell("continue")
    site.wait_for_heartbeats(successor, 2)  # limits are enforced before a heartbeat is sent
    site.tell("finish")
    assert worker.wait() == 0
    assert site.charged() == (0, 0)
    assert site.counts() == {"succeeded": len(jobs)}


@pytest.fixture
def older_child(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "older"
    yield path
    if path.exists() and psutil.pid_exists(pid := int(path.read_text())):
        os.kill(pid, signal.SIGKILL)


def test_a_child_from_before_the_worker_is_not_killed(sqlite_site: Site, older_child: Path) -> None:
    """`proxy & exec holdfast worker …`, as many an entrypoint does."""
    site = sqlite_site
    site.tasks("""
        @app.task
        def crash():
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    site.enqueue("crash", max_crashes=1)
    worker = f"{sys.executable} -m holdfast --database {site.url} worker tasks:app --processes 1 --drain"
    script = f"sleep 600 & echo $! > {older_child}; exec {worker}"
    subprocess.run(["sh", "-c", script], cwd=site.folder, env=site.environment(), check=True, timeout=DEADLINE_SECONDS)
    assert psutil.pid_exists(int(older_child.read_text()))
