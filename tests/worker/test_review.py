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
from tests.worker.site import Site


def test_progress_that_cannot_be_stored_costs_nobody_a_lease(sqlite_site: Site) -> None:
    """One heartbeat carries the progress of all jobs; one job that says too much must not make it fail."""
    site = sqlite_site
    site.tasks("""
        @app.task(lease=3)
        def noisy(ctx: Context):
            for number in range(100):
                ctx.progress(number, note="x" * 10_000)
                time.sleep(0.05)

        @app.task(lease=3)
        def neighbour():
            time.sleep(5)
    """)
    jobs = [site.enqueue(task, lease_seconds=3) for task in ("noisy", "noisy", "noisy", "neighbour")]
    site.drain("--processes", "4", LEASE_SECONDS="3")
    for job in jobs:
        assert site.event_names(job) == ["enqueued", "claimed", "succeeded"]


def test_a_runner_that_dies_of_a_signal_without_a_name_is_reported(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task
        def strange():
            os.kill(os.getpid(), 40)
    """)
    job = site.enqueue("strange", max_crashes=1)
    site.drain("--processes", "1", timeout=20)
    assert site.job(job).state is State.FAILED


def test_garbage_from_a_runner_ends_that_runner_only(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks("""
        @app.task
        def garbage():
            fd = int(sys.argv[sys.argv.index("--fd") + 1])
            os.write(fd, b"what is this\\n")
            time.sleep(30)

        @app.task
        def neighbour():
            time.sleep(1.5)
    """)
    bad = site.enqueue("garbage", max_crashes=1)
    good = site.enqueue("neighbour")
    site.drain("--processes", "2", timeout=20)
    assert site.job(bad).state is State.FAILED
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
    site.drain("--processes", "1", *flags, timeout=20)
    assert [site.job(job).state for job in jobs] == [State.FAILED] * 3
    assert site.charged() == (3, 0)


def test_the_successor_of_a_job_that_ended_in_time_is_left_alone(sqlite_site: Site) -> None:
    """The supervisor stands still while one job ends and the next begins; then the limit of the first has passed."""
    site = sqlite_site
    site.tasks("""
        @app.task(timeout=1)
        def step(what: str = ""):
            if what == "stop":
                time.sleep(0.02)  # its start is heard, and the next one is not yet asked back
                os.kill(os.getppid(), signal.SIGSTOP)
            if what == "continue":
                time.sleep(1.5)
                os.kill(os.getppid(), signal.SIGCONT)
                time.sleep(0.5)
    """)
    for what in [""] * 200 + ["stop", "continue"]:
        site.enqueue("step", {"what": what}, timeout_seconds=1)
    site.drain("--processes", "1", timeout=30)
    assert site.charged() == (0, 0)
    assert site.counts() == {"succeeded": 202}


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
    script = f"sleep 60 & echo $! > {older_child}; exec {worker}"
    subprocess.run(["sh", "-c", script], cwd=site.folder, env=site.environment(), check=True, timeout=30)
    assert psutil.pid_exists(int(older_child.read_text()))
