"""How a new job wakes a worker. A notification is a hint: polling alone finds every job.

The first poll after a job comes due an hour later, so that a wake-up starts the next job. Where a poll should start it,
the test moves the clock.
"""

from pathlib import Path

import pytest

from holdfast.domain.lifecycle import State
from tests.chaos.databases import connect, query
from tests.servers.waiting import wait_until
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import Site, WorkerProcess, patched

TASKS = "@app.task\ndef punctual(): pass"
IDLE = '"after": "idle"'
POLL_SECONDS = 3600.0
RARELY = f"from holdfast.worker import pickup; pickup.FIRST_WAIT_SECONDS = {POLL_SECONDS}"
LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


def start(site: Site, program: list[str], *flags: str) -> WorkerProcess:
    site.tasks(TASKS)
    return site.worker("--processes", "1", *flags, program=program, POLL_INTERVAL=f"{POLL_SECONDS:g}")


def run_one(site: Site) -> None:
    site.wait_for_state(site.enqueue("punctual"), State.SUCCEEDED)


def listeners(site: Site) -> list[int]:
    return [pid for (pid,) in query(site.url, f"SELECT pid {LISTENERS}")]


def wait_until_listening(worker: WorkerProcess, times: int) -> None:
    wait_until(lambda: worker.text().count("wake-ups are listening") >= times, what="the worker says that it listens")


@pytest.fixture
def clock(tmp_path: Path) -> LeaseClock:
    return LeaseClock(tmp_path / "clock")


def test_job_of_another_process_wakes_a_worker_of_the_same_file(sqlite_site: Site) -> None:
    worker = start(sqlite_site, patched(RARELY))
    worker.wait_for_log(IDLE)
    for _ in range(3):
        run_one(sqlite_site)
    assert worker.running


def test_notification_wakes_a_worker_and_a_killed_listener_costs_no_more_than_a_poll(
    postgres_site: Site, clock: LeaseClock
) -> None:
    site = postgres_site
    worker = start(site, clock.patched(RARELY))
    wait_until_listening(worker, 1)
    worker.wait_for_log(IDLE)
    for _ in range(3):
        run_one(site)
    before = listeners(site)
    assert len(before) == 1
    with connect(site.url, autocommit=True) as ours:
        ours.execute("SELECT pg_terminate_backend(%s)", before)
    job = site.enqueue("punctual", lease_seconds=10 * POLL_SECONDS)  # it may run when the clock is moved
    clock.advance(POLL_SECONDS)  # whatever becomes of the notification
    site.wait_for_state(job, State.SUCCEEDED)
    worker.wait_for_log("wake-ups are degraded")
    site.wait(lambda: bool(listeners(site)) and listeners(site) != before, "somebody listens again")
    wait_until_listening(worker, 2)
    run_one(site)


def test_without_notifications_a_job_starts_within_the_poll_interval(postgres_site: Site, clock: LeaseClock) -> None:
    """However often it has found nothing before: the wait between two polls grows up to the interval."""
    site = postgres_site
    worker = start(site, clock.program, "--no-notify")
    worker.wait_for_log(IDLE)
    clock.freeze()
    for _ in range(3):
        polls = worker.text().count(IDLE)
        clock.advance(POLL_SECONDS)
        site.wait(lambda polls=polls: worker.text().count(IDLE) > polls, "it polls")  # type: ignore[misc]
    assert listeners(site) == []
    job = site.enqueue("punctual")
    clock.advance(POLL_SECONDS)
    site.wait_for_state(job, State.SUCCEEDED)
