"""A clock that jumps: processes really see another time, and workers that do keep their leases all the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from holdfast.domain.lifecycle import State
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.upgrade import upgrade
from holdfast.torture.skewed import CLOCK, SkewedClock
from tests.worker.site import Site, WorkerProcess

HOUR = 3600.0
DAY = 86_400.0
# Jobs bring a lease that outlives any pause of the machine. The worker's own gives its reaper a period of a second.
LEASE, WORKER_LEASE, HEARTBEAT = 60.0, "6", "0.5"
RENEWED_BY = 3.0  # several heartbeats, and several passes of a reaper
SOON = RetryPolicy("fixed", base=0.1, jitter=0.0)

WITNESS = """
import json, os, subprocess, sys, time
from datetime import UTC, date, datetime
def seconds(parts):
    return time.mktime(parts)
def told():
    return {
        "time": time.time(),
        "time_ns": time.time_ns() / 1e9,
        "clock_gettime": time.clock_gettime(time.CLOCK_REALTIME),
        "clock_gettime_ns": time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9,
        "localtime": seconds(time.localtime()),
        "gmtime": seconds(time.gmtime()) - time.timezone,
        "ctime": seconds(time.strptime(time.ctime())),
        "asctime": seconds(time.strptime(time.asctime())),
        "strftime": seconds(time.strptime(time.strftime("%Y-%m-%d %H:%M:%S"), "%Y-%m-%d %H:%M:%S")),
        "now": datetime.now().timestamp(),
        "now in a zone": datetime.now(UTC).timestamp(),
        "utcnow": datetime.utcnow().replace(tzinfo=UTC).timestamp(),
        "today": datetime.today().timestamp(),
        "date": datetime.combine(date.today(), datetime.now().time()).timestamp(),
    }
def ticking():
    return [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.clock_gettime(time.CLOCK_MONOTONIC)]
"""
# Says what it is told, again for each line that it hears; the last time from a fork.
TALKS = """
for _line in sys.stdin:
    print(json.dumps([told(), ticking()]), flush=True)
if os.fork() == 0:
    print(json.dumps([told(), ticking()]), flush=True)
    os._exit(0)
os.wait()
"""
# Says what a child process of it is told.
ASKS = """
child = [sys.executable, "-c", "import time; print(time.time())"]
print(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
"""


@pytest.fixture
def clock(tmp_path: Path) -> SkewedClock:
    return SkewedClock(tmp_path / "clock")


def assert_off_by(seconds: float, answer: str) -> None:
    told, ticking = json.loads(answer)
    now = time.time()
    # Within ten minutes: of machines that are slow, and of what tells no fractions of seconds.
    assert {name: value for name, value in told.items() if abs(value - now - seconds) > 600} == {}
    assert all(abs(value - time.monotonic()) < 600 for value in (ticking[0], ticking[2]))
    assert abs(ticking[1] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 600


def test_everything_that_tells_the_time_of_day_jumps_and_nothing_else(clock: SkewedClock) -> None:
    command = clock.command("-c", WITNESS + TALKS)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for jump, offset in ((0.0, 0.0), (HOUR, HOUR), (-2 * HOUR, -HOUR), (10 * DAY, 10 * DAY - HOUR)):
            clock.jump(jump)
            print("?", file=process.stdin, flush=True)
            assert_off_by(offset, process.stdout.readline())
        clock.right()
        print("?", file=process.stdin, flush=True)
        assert_off_by(0.0, process.stdout.readline())
        clock.jump(DAY)
        process.stdin.close()
        assert_off_by(DAY, process.stdout.readline())
    assert process.returncode == 0


def test_processes_that_are_started_are_under_the_same_clock(clock: SkewedClock) -> None:
    clock.jump(DAY)
    done = subprocess.run(clock.command("-c", WITNESS + ASKS), capture_output=True, text=True, check=True)
    assert abs(float(done.stdout) - time.time() - DAY) < 600


def test_the_types_are_the_ones_that_everybody_knows(clock: SkewedClock) -> None:
    code = """
import datetime, pickle, sqlite3, time
now = datetime.datetime.now(datetime.UTC)
assert type(now) is datetime.datetime
assert pickle.loads(pickle.dumps(now)) == now
class Mine(datetime.datetime): ...
assert type(Mine.now()) is Mine
assert time.gmtime(0).tm_year == 1970 and time.strftime("%Y", time.gmtime(0)) == "1970"
import holdfast.wiring.sql, holdfast.worker.supervisor, pydantic, psycopg, redis, rq, httpx
class Model(pydantic.BaseModel):
    at: datetime.datetime
assert Model(at=now.isoformat()).at == now
"""
    done = subprocess.run(clock.command("-c", code), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_is_run_with_its_arguments(clock: SkewedClock) -> None:
    done = subprocess.run(clock.command("holdfast", "version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("holdfast ")


def test_a_clock_that_cannot_be_read_ends_the_process(clock: SkewedClock, tmp_path: Path) -> None:
    environment = clock.environment() | {CLOCK: str(tmp_path / "missing")}
    done = subprocess.run([sys.executable, "-c", "print('ran')"], env=environment, capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stdout == b""


def test_a_sitecustomize_of_the_users_own_is_still_imported(clock: SkewedClock, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine', flush=True)")
    environment = clock.environment({"PYTHONPATH": str(tmp_path)})
    done = subprocess.run([sys.executable, "-c", "print('ran')"], env=environment, capture_output=True, check=True)
    assert done.stdout == b"mine\nran\n"


# Workers

TASKS = """
    @app.task
    def wait_for(name: str) -> list[float]:
        seen = [time.time()]
        Path(f"{name}.pid").write_text(str(os.getpid()))
        while not Path(name).exists():
            seen = [min(time.time(), *seen), max(time.time(), *seen)]
            time.sleep(0.02)
        return seen

    @app.task
    def tell() -> float:
        return time.time()

    @app.task
    def stumble(ctx: Context) -> float:
        if ctx.attempt == 1:
            raise RuntimeError("over the cable")
        return time.time()
"""


@pytest.fixture
def site(tmp_path: Path, postgres_database: str) -> Iterator[Site]:
    """On Postgres: on SQLite, a worker's clock is the store's."""
    engine = create_engine(postgres_database)
    upgrade(engine)
    engine.dispose()
    with Site(tmp_path, postgres_database) as site:
        yield site


def wait_for_renewals(site: Site, *job_ids: str) -> None:
    """Until each lease has been renewed several times, counted from now."""
    first = {job_id: site.job(job_id).lease_expires_at for job_id in job_ids}

    def renewed(job_id: str) -> bool:
        now, before = site.job(job_id).lease_expires_at, first[job_id]
        return now is not None and before is not None and (now - before).total_seconds() > RENEWED_BY

    site.wait(lambda: all(renewed(job_id) for job_id in job_ids), "every lease is renewed several times")


def off(site: Site, worker: WorkerProcess, task: str = "tell") -> float:
    """How wrong the clock is that a job of this worker's runner reads."""
    job = site.wait_for_state(site.enqueue(task, queue="skewed", retry=SOON, lease_seconds=LEASE), State.SUCCEEDED)
    assert worker.running
    result: Any = job.result
    return float(result) - time.time()


def start(site: Site, queue: str, **environment: str) -> WorkerProcess:
    site.tasks(TASKS)
    flags = ("--queues", queue, "--processes", "2", "--async-slots", "1")
    timing = {"LEASE_SECONDS": WORKER_LEASE, "HOLDFAST_HEARTBEAT_SECONDS": HEARTBEAT}
    return site.worker(*flags, log_level="warning", **timing, **environment)


def test_workers_whose_clock_jumps_keep_their_leases_and_take_nobody_elses(site: Site, clock: SkewedClock) -> None:
    skewed = start(site, "skewed", **clock.environment({}))
    right = start(site, "right")
    queues = ("skewed", "right")
    jobs = [site.enqueue("wait_for", {"name": queue}, queue=queue, lease_seconds=LEASE) for queue in queues]
    for queue in queues:
        site.wait_for_file(f"{queue}.pid")
    for jump, offset in ((HOUR, HOUR), (-2 * HOUR, -HOUR)):
        clock.jump(jump)
        assert abs(off(site, skewed) - offset) < 600
        wait_for_renewals(site, *jobs)
    site.tell("skewed")
    site.tell("right")
    seen: Any = site.wait_for_state(jobs[0], State.SUCCEEDED).result
    earliest, latest = seen
    assert latest - earliest > 2 * HOUR - 600  # the job saw it all, in one piece
    site.wait_for_state(jobs[1], State.SUCCEEDED)
    for job_id in jobs:
        assert site.event_names(job_id) == ["enqueued", "claimed", "succeeded"]
    assert site.count_events("lease_lost") == 0
    assert site.store.refusals() == []
    assert (skewed.stop(), right.stop()) == (0, 0)


def test_retries_are_due_by_the_stores_clock(site: Site, clock: SkewedClock) -> None:
    skewed = start(site, "skewed", **clock.environment({}))
    clock.jump(-HOUR)
    assert off(site, skewed, "stumble") < 600 - HOUR
    clock.jump(2 * HOUR)
    assert off(site, skewed, "stumble") > HOUR - 600
