"""A worker with nothing to do asks little and costs little."""

import time

import psutil
import pytest

from tests.worker.counting_proxy import CountingProxy
from tests.worker.site import Site, WorkerProcess

POLLS_UNTIL_RARE = 8  # by then the wait between two questions has grown to nearly the poll interval of 2 s


def wait_until_at_rest(worker: WorkerProcess, site: Site) -> None:
    idle = '"after": "idle"'
    site.wait(lambda: worker.text().count(idle) >= POLLS_UNTIL_RARE, "the worker polls at its slowest", 40)


def cpu_seconds(worker: WorkerProcess) -> float:
    """Of the supervisor and its runners."""
    times = [process.cpu_times() for process in (psutil.Process(worker.pid), *worker.runners())]
    return sum(time.user + time.system for time in times)


def watch_idle_worker(site: Site, seconds: float) -> tuple[float, float]:
    """Statements a second, and the share of a core, of a worker at rest."""
    site.tasks("@app.task\ndef nothing(): pass\n\n@app.task\nasync def nothing_async(): pass")
    with CountingProxy(site.url) as proxy:
        worker = site.worker("--processes", "2", url=proxy.url)
        wait_until_at_rest(worker, site)
        statements, used, began = len(proxy.statements), cpu_seconds(worker), time.monotonic()
        site.wait(lambda: time.monotonic() >= began + seconds, f"{seconds} s are over", seconds + 10)
        passed = time.monotonic() - began
        asked = (len(proxy.statements) - statements) / passed
        cpu = (cpu_seconds(worker) - used) / passed
    print(f"idle for {passed:.1f} s: {asked:.2f} statements a second, {cpu:.2%} of a core")
    assert len(proxy.statements) > statements, "the proxy saw nothing: what was counted?"
    return asked, cpu


def test_idle_worker_asks_postgres_at_most_once_a_second(postgres_site: Site) -> None:
    asked, _cpu = watch_idle_worker(postgres_site, 6.0)
    assert asked <= 1.0


@pytest.mark.long
def test_idle_worker_asks_at_most_once_a_second_and_uses_under_one_percent_of_a_core(postgres_site: Site) -> None:
    asked, cpu = watch_idle_worker(postgres_site, 60.0)
    assert asked <= 1.0
    assert cpu < 0.01


@pytest.mark.long
def test_idle_worker_on_sqlite_uses_under_one_percent_of_a_core(sqlite_site: Site) -> None:
    """Although it looks twenty times a second whether its file has changed."""
    sqlite_site.tasks("@app.task\ndef nothing(): pass")
    worker = sqlite_site.worker("--processes", "2")
    wait_until_at_rest(worker, sqlite_site)
    used, began = cpu_seconds(worker), time.monotonic()
    sqlite_site.wait(lambda: time.monotonic() >= began + 60, "60 s are over", 70)
    cpu = (cpu_seconds(worker) - used) / (time.monotonic() - began)
    print(f"idle on SQLite: {cpu:.2%} of a core")
    assert cpu < 0.01
