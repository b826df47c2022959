"""How soon a new job starts. A notification is a hint: polling alone keeps the bound.

The wait between two polls begins at 0.1 s and grows by half each time nothing is found. A test that wants to see a
wake-up lets it grow first, so that polling would be noticeably late.
"""

import statistics
import time

import pytest

from holdfast.domain.lifecycle import State
from tests.chaos.databases import connect, query
from tests.worker.notes import NOTE, notes
from tests.worker.site import Site, WorkerProcess

TASKS = (
    NOTE
    + """
@app.task
def punctual():
    note("started", time.time_ns())
"""
)
IDLE = '"after": "idle"'
POLLS = 8  # the next wait is then 1.3 s at least
FAR_BELOW = 1.0
LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


def wait_until_polls_are_rare(site: Site, worker: WorkerProcess) -> None:
    """Counted from the last job, which begins the waits anew."""

    def idle_since_the_last_job() -> int:
        *_, tail = worker.text().rsplit('"event": "jobs claimed"', 1)
        return tail.count(IDLE)

    site.wait(lambda: idle_since_the_last_job() >= POLLS, "the worker polls rarely")


def seconds_to_start(site: Site, timeout: float = 30.0) -> float:
    """From the commit of a new job to the first line of its task."""
    job = site.enqueue("punctual")
    committed = time.time_ns()
    site.wait_for_state(job, State.SUCCEEDED, timeout=timeout)
    [started] = [int(at) for noted, _attempt, at in notes(site, "started") if noted == job]
    return (started - committed) / 1e9


def listeners(site: Site) -> list[int]:
    return [pid for (pid,) in query(site.url, f"SELECT pid {LISTENERS}")]


def test_job_of_another_process_wakes_a_worker_of_the_same_file(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", POLL_INTERVAL="30")
    wait_until_polls_are_rare(site, worker)
    assert seconds_to_start(site) < FAR_BELOW


def test_notification_wakes_a_worker_and_a_killed_listener_costs_no_more_than_a_poll(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", POLL_INTERVAL="3")
    wait_until_polls_are_rare(site, worker)
    assert seconds_to_start(site) < FAR_BELOW
    before = listeners(site)
    assert len(before) == 1
    with connect(site.url, autocommit=True) as ours:
        ours.execute("SELECT pg_terminate_backend(%s)", before)
    # Whatever becomes of the notification: the next poll is at most three seconds away.
    assert seconds_to_start(site) < 3.0 + 1.0
    worker.wait_for_log("wake-ups are degraded")
    site.wait(lambda: bool(listeners(site)) and listeners(site) != before, "somebody listens again")
    site.wait(lambda: worker.text().count("wake-ups are listening") == 2, "it says that it listens again")
    wait_until_polls_are_rare(site, worker)
    assert seconds_to_start(site) < FAR_BELOW


def test_without_notifications_a_job_starts_within_the_poll_interval(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(TASKS)
    worker = site.worker("--processes", "1", "--no-notify", POLL_INTERVAL="1")
    site.wait(lambda: worker.text().count(IDLE) >= POLLS - 1, "polls are as rare as they get")
    assert listeners(site) == []
    assert seconds_to_start(site) < 1.0 + 1.0  # and a moment for a busy machine to claim and start it


@pytest.mark.long
def test_with_notifications_the_median_job_starts_within_10_ms(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(TASKS)
    worker = site.worker("--processes", "2", log_level="info", POLL_INTERVAL="30")
    worker.wait_for_log(", all queues, ")
    taken = []
    for _ in range(33):
        # Notifications are coalesced: the first is sent at once, the next not within 50 ms of it.
        moment = time.monotonic() + 0.2
        site.wait(lambda moment=moment: time.monotonic() > moment, "the sender rests no more")  # type: ignore[misc]
        taken.append(seconds_to_start(site))
    taken = taken[3:]  # the first ones open connections
    print(f"median {statistics.median(taken) * 1e3:.1f} ms, longest {max(taken) * 1e3:.1f} ms")
    assert statistics.median(taken) < 0.010
