"""Real workers on a store whose clock jumps: `holdfast_now()` on Postgres, the host's clock on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.torture.skewed import SkewedClock
from tests.chaos.databases import MovableClock
from tests.worker.site import Site, WorkerProcess, patched

HOUR = 3_600.0
SHORT_LEASE = 3.0
LEASE = 60.0
OFTEN = "from holdfast.domain import timing; timing.LONGEST_REAP_PERIOD_SECONDS = 1.0"
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
        return self._site.worker(*flags, log_level="info", program=patched(OFTEN), **skewed)

    def enqueue(self, task: str, queue: str, lease_seconds: float = LEASE, **payload: str) -> str:
        return self.store.enqueue(NewJob(task=task, payload=payload, queue=queue, lease_seconds=lease_seconds)).id


@pytest.fixture
def clock(site: Site, tmp_path: Path) -> Iterator[StoreClock]:
    site.tasks(TASKS)
    clock = StoreClock(site, tmp_path)
    yield clock
    clock.store.close()


def test_work_continues_after_the_clock_is_set_back(site: Site, clock: StoreClock) -> None:
    clock.jump(HOUR)
    dying, living = clock.worker("first"), clock.worker("second")
    lost, held = clock.enqueue("hold", "first", SHORT_LEASE, name="lost"), clock.enqueue("hold", "second", name="held")
    site.wait_for_file("lost.pid")
    site.wait_for_file("held.pid")
    clock.store.pause_queue("second")
    due = clock.enqueue("add", "second")
    dying.kill()
    clock.jump(-HOUR)
    clock.store.resume_queue("second")
    site.wait_for_state(due, State.SUCCEEDED)
    site.wait_for_event(lost, "lease_lost")
    site.wait_for_heartbeats(held)
    site.tell("held")
    site.wait_for_state(held, State.SUCCEEDED)
    assert site.event_names(held) == ["enqueued", "claimed", "succeeded"]
    living.wait_for_log("clock was set back")
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
