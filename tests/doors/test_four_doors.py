"""One queue and one backlog, drained at the same time by workers of all four kinds: each job once, all have a share.

No job ends before every door has one, so that the four are really at it together.
"""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis
from rq import Queue

from holdfast.throwaway.process import free_port
from holdfast.throwaway.valkey import ValkeyServer
from tests.chaos.databases import query
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site, WorkerProcess

DOORS = ("database", "http", "redis", "rq")
TASKS = """
DOORS = Path("doors")

@app.task(max_attempts=100, max_crashes=100)
def pass_through():
    (DOORS / os.environ["DOOR"]).touch()
    while len(list(DOORS.iterdir())) < 4:
        time.sleep(0.01)
    time.sleep(0.002)
"""


class Doors:
    """Four workers of four kinds, and the control plane that one of them speaks to."""

    def __init__(self, site: Site, valkey: ValkeyServer, lease: str) -> None:
        self._site = site
        self._valkey = valkey
        self._port = free_port()
        self._timing = {"LEASE_SECONDS": lease, "POLL_INTERVAL": "0.2"}
        site.tasks(TASKS)
        (site.folder / "doors").mkdir()
        self.plane = self.control_plane()
        site.workers.append(self.plane)
        token = subprocess.run(
            [sys.executable, "-m", "holdfast", "--database", site.url, "tokens", "create", "door", "--scope", "worker"],
            env=site.environment(),
            capture_output=True,
            check=True,
        )
        self._token = token.stdout.decode().strip()
        site.wait(self._ready, "the control plane is ready")

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz", timeout=DEADLINE_SECONDS).status_code == 200
        except httpx.TransportError:
            return False

    def control_plane(self) -> WorkerProcess:
        return self._site.start("serve", "--port", str(self._port), log_level="info", **self._timing)

    def open(self, door: str) -> WorkerProcess:
        environment = {**self._timing, "DOOR": door, "WORKER_ID": door}
        match door:
            case "database":
                started = self._worker(**environment)
            case "http":
                plane = f"http://127.0.0.1:{self._port}"
                started = self._worker("--control-plane", plane, url="", HOLDFAST_TOKEN=self._token, **environment)
            case "redis":
                started = self._worker("--redis", self._valkey.url, **environment)
            case _:
                started = self._rq_worker(environment)
        print(door, "is process", started.pid)
        return started

    def _worker(self, *flags: str, url: str | None = None, **environment: str) -> WorkerProcess:
        return self._site.worker("--processes", "1", *flags, url=url, log_level="info", **environment)

    def _rq_worker(self, environment: dict[str, str]) -> WorkerProcess:
        rq = Path(sys.executable).with_name("rq")
        known = {**environment, "HOLDFAST_APP": "tasks:app", "DATABASE_URL": self._site.url}
        started = WorkerProcess(
            [str(rq), "worker", "--url", self._valkey.url, "default"],
            self._site.folder,
            self._site.environment(**known),
            self._site.folder / f"rq-{len(self._site.workers)}.log",
        )
        self._site.workers.append(started)
        return started

    def shares(self) -> Counter[str]:
        """Who brought how many jobs to their end."""
        ends = query(self._site.url, "SELECT worker FROM holdfast_events WHERE event = 'succeeded'")
        return Counter(next(door for door in DOORS if str(worker).startswith(door)) for (worker,) in ends)


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    server = ValkeyServer()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        print("Valkey", client.info("server").get("valkey_version", client.info("server")["redis_version"]))
    yield server
    server.close()


@contextmanager
def backlog(site: Site, valkey: ValkeyServer, count: int, **options: object) -> Iterator[list[str]]:
    """Jobs that are in the database, and in RQ's queue as well."""
    ids = site.enqueue_many("pass_through", count, max_attempts=100, max_crashes=100, **options)
    with redis.Redis.from_url(valkey.url) as client:
        queue = Queue("default", connection=client)
        queue.enqueue_many([Queue.prepare_data("holdfast.rq.execute_run", [job_id], timeout=-1) for job_id in ids])
        yield ids
        stream = client.xlen("holdfast:stream:default")
        print("left in the stream:", stream)


def at_least(site: Site, count: int) -> bool:
    return site.counts().get("succeeded", 0) >= count


def assert_each_once(site: Site, count: int) -> None:
    assert site.counts() == {"succeeded": count}
    assert site.count_events("succeeded") == count


def test_every_job_once_and_all_four_did_some(postgres_site: Site, valkey: ValkeyServer) -> None:
    drain_through_all_four(postgres_site, valkey, 300)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_thousand_jobs(site: Site, valkey: ValkeyServer) -> None:
    drain_through_all_four(site, valkey, 2_000)


def drain_through_all_four(site: Site, valkey: ValkeyServer, count: int) -> None:
    with backlog(site, valkey, count):
        doors = Doors(site, valkey, lease="60")
        workers = [doors.open(door) for door in DOORS]
        site.wait(lambda: at_least(site, count), "the backlog is drained", timeout=DEADLINE_SECONDS + count / 5)
        assert all(worker.running for worker in workers)
        shares = doors.shares()
        print(shares)
        assert set(shares) == set(DOORS)
        assert_each_once(site, count)
        assert site.count_events("claimed") == count
        assert site.charged() == (0, 0)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_same_while_each_is_killed_again_and_again(site: Site, valkey: ValkeyServer) -> None:
    count, chance = 2_000, random.Random(20261116)
    with backlog(site, valkey, count, lease_seconds=3):
        doors = Doors(site, valkey, lease="3")
        workers = {door: doors.open(door) for door in DOORS}
        killed: Counter[str] = Counter()
        while (done := site.counts().get("succeeded", 0)) < count:
            next_kill = min(done + chance.randint(1, 80), count)
            site.wait(partial(at_least, site, next_kill), "more of the backlog is done")
            door = chance.choice(DOORS)
            workers[door].kill()
            killed[door] += 1
            workers[door] = doors.open(door)
        shares = doors.shares()
        print("killed", killed, "shares", shares)
        assert set(killed) == set(shares) == set(DOORS)
        assert_each_once(site, count)
