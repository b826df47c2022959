"""Real workers on a store whose clock jumps: `holdfast_now()` on Postgres, the host's clock on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.torture.skewed import SkewedClock
from tests.chaos.databases import MovableClock, query
from tests.worker.site import REAP_OFTEN, Site, WorkerProcess, patched

HOUR = 3_600.0
LEASE = 60.0
STEP = 15.0  # between two passes of the reaper; one that were longer than a lease would be an outage
TASKS = """
    @app.task
    def hold(name: str) -> None:
        with Path(f"{name}.pid").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        while not Path(name).exists():
            time.sleep(0.02)

    @app.task
    def add() -> int:
        return 3
"""


class StoreClock:
    """The store's clock as every process reads it: the test's own store and its workers."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._host = SkewedClock(folder / "clock")
        self._store = MovableClock(site.url)
        self.store = self._store.store

    def jump(self, seconds: float) -> None:
        self._store.advance(seconds)
        if self._site.is_sqlite:
            self._host.jump(seconds)

    def worker(self, queue: str) -> WorkerProcess:
        flags = ("--queues", queue, "--processes", "2", "--async-slots", "1", "--heartbeat", "0.3s")
        skewed = self._host.environment({}) if self._site.is_sqlite else {}
        return self._site.worker(*flags, log_level="info", program=patched(REAP_OFTEN), **skewed)

    def enqueue(self, task: str, queue: str, **payload: str) -> str:
        return self.store.enqueue(NewJob(task=task, payload=payload, queue=queue, lease_seconds=LEASE)).id

    def step(self) -> None:
        """Until a reaper has passed once more."""
        passed = "SELECT ticked_at FROM holdfast_duties WHERE name = 'reaper'"
        before = query(self._site.url, passed)
        self.jump(STEP)
        self._site.wait(lambda: query(self._site.url, passed) != before, "a reaper passes")


@pytest.fixture
def clock(site: Site, tmp_path: Path) -> Iterator[StoreClock]:
    site.tasks(TASKS)
    clock = StoreClock(site, tmp_path)
    yield clock
    clock.store.close()


def test_work_continues_after_the_clock_is_set_back(site: Site, clock: StoreClock) -> None:
    clock.jump(HOUR)
    dying, living = clock.worker("first"), clock.worker("second")
    lost, held = clock.enqueue("hold", "first", name="lost"), clock.enqueue("hold", "second", name="held")
    site.wait_for_file("lost.pid")
    site.wait_for_file("held.pid")
    clock.store.pause_queue("second")
    due = clock.enqueue("add", "second")
    dying.kill()
    clock.jump(-HOUR)
    clock.store.resume_queue("second")
    site.wait_for_state(due, State.SUCCEEDED)
    living.wait_for_log("clock was set back")
    passed = 0.0
    while "lease_lost" not in site.event_names(lost):
        assert passed < HOUR / 2, "the lease ends about a lease after the step, not an hour later"
        clock.step()
        site.wait_for_heartbeats(held)
        passed += STEP
    site.tell("held")
    site.wait_for_state(held, State.SUCCEEDED)
    assert site.event_names(held) == ["enqueued", "claimed", "succeeded"]
    assert living.stop() == 0


def test_clock_that_jumps_both_ways_runs_nothing_twice(site: Site, clock: StoreClock) -> None:
    worker = clock.worker("work")
    held = clock.enqueue("hold", "work", name="held")
    site.wait_for_file("held.pid")
    for jump in (600, -600, 600, -1_200, 600):
        clock.jump(jump)
        site.wait_for_heartbeats(held)
        assert site.wait_for_state(clock.enqueue("add", "work"), State.SUCCEEDED).attempt == 1
    site.tell("held")
    assert site.wait_for_state(held, State.SUCCEEDED).attempt == 1
    assert len(site.wait_for_pids("held.pid")) == 1
    assert site.count_events("lease_lost") == 0
    assert site.store.refusals() == []
    assert worker.stop() == 0
