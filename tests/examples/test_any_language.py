"""The example workers in bash and in Node, against a control plane that really runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.domain.lifecycle import State
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.tokens import NewToken, Scope
from tests.contract.ground import ByHand
from tests.servers.waiting import gone
from tests.worker.site import Site, WorkerProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "any_language"
LEASE_SECONDS = 600.0  # no lease ends while a test runs
# With such a lease the server asks for a heartbeat every 20 s. In the copies that are run, 20 s are half a second.
# The answer to a heartbeat may still take as long as before.
SOONER = {
    "bash": (
        ("every=${F[heartbeat_interval_seconds]}", "every=${F[heartbeat_interval_seconds]/20.0/0.5}"),
        ('post heartbeat "{$1}" "$every" 0', 'post heartbeat "{$1}" 20 0'),
    ),
    "node": (("job.heartbeat_interval_seconds * 1000", "job.heartbeat_interval_seconds * 25"),),
}
ONCE = RetryPolicy(base=3600.0)  # the second attempt is not within the test
SCRIPTS = {"bash": "worker.sh", "node": "worker.mjs"}
TRICKY = 'a "quoted" word, a \\ and a \\"\n\t{"job_id": "no", "lease_token": [1, 2]} ü 😀'


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"the examples are run by a real {name}, and tests/programs.py found none: install it"
    return found


class Fleet:
    """A control plane, and workers that know its address and a token."""

    def __init__(self, site: Site, language: str) -> None:
        self.site = site
        self.language = language
        self.queue = f"queue-{uuid.uuid4().hex[:8]}"
        self.started: list[WorkerProcess] = []

    def worker(self) -> WorkerProcess:
        number = len(self.site.workers)
        environment = {**os.environ, "HOLDFAST_URL": self.url, "HOLDFAST_TOKEN": self.token}
        log = self.site.folder / f"{self.language}-{number}.log"
        command = [program(self.language), str(self.site.folder / SCRIPTS[self.language]), self.queue]
        worker = WorkerProcess(command, self.site.folder, environment, log)
        print(f"{self.language} worker with pid {worker.pid}, control plane with pid {self.site.workers[0].pid}")
        self.site.workers.append(worker)
        self.started.append(worker)
        return worker

    @property
    def url(self) -> str:
        return str(next(line["url"] for line in self.site.workers[0].lines() if "url" in line))

    @property
    def token(self) -> str:
        return (self.site.folder / "token").read_text()

    def enqueue(self, payload: dict[str, Any], **options: Any) -> str:
        return self.site.enqueue("echo", payload, queue=self.queue, **{"lease_seconds": LEASE_SECONDS, **options})

    def begun(self, job_id: str) -> None:
        self.site.wait(lambda: self.site.job(job_id).state is State.RUNNING, "the job runs")
        attempt = f"runs {job_id}.{self.site.job(job_id).attempt}"
        self.site.wait(lambda: any(attempt in worker.text().replace('"', "") for worker in self.started), "it says so")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("bash", "curl", "node"):
        told = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True).stdout
        print(told.splitlines()[0])
    for language, changes in SOONER.items():
        script = (EXAMPLES / SCRIPTS[language]).read_text()
        for text, sooner in changes:
            assert script.count(text) == 1
            script = script.replace(text, sooner)
        (folder / SCRIPTS[language]).write_text(script)
    with Site(folder, f"sqlite:///{folder / 'jobs.db'}") as site:
        (folder / "token").write_text(site.store.create_token(NewToken("fleet", (Scope.WORKER,))).text)
        server = site.start("serve", "--port", "0")
        site.workers.append(server)
        server.wait_for_log("listening on")
        yield site
        assert server.stop() == 0


@pytest.fixture(params=SCRIPTS)
def fleet(site: Site, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(site, request.param)
    yield fleet
    for worker in fleet.started:
        worker.kill()


def stop(worker: WorkerProcess) -> None:
    assert worker.stop() == 0, worker.text()
    assert "stopped" in worker.text()


def test_it_completes_and_fails_jobs(fleet: Fleet) -> None:
    echoed = fleet.enqueue({"text": TRICKY})
    nested = fleet.enqueue({"text": {"list": [1, {"deep": None}], "lease_token": "no"}, "seconds": 0.1})
    failing = fleet.enqueue({"error": "over the cable & in it"}, retry=ONCE)
    worker = fleet.worker()
    fleet.site.wait_for_state(failing, State.RETRYABLE)
    assert fleet.site.wait_for_state(echoed, State.SUCCEEDED).result == {"echo": TRICKY, "by": fleet.language}
    assert fleet.site.wait_for_state(nested, State.SUCCEEDED).result["echo"]["list"] == [1, {"deep": None}]
    assert (fleet.site.job(failing).last_error or {})["message"] == "over the cable & in it"
    stop(worker)


def test_it_keeps_a_lease_for_longer_than_it_is_and_gives_the_job_back_when_it_is_stopped(fleet: Fleet) -> None:
    job_id = fleet.enqueue({"seconds": 600})
    worker = fleet.worker()
    fleet.begun(job_id)
    seen = set()

    def renewed_often() -> bool:
        seen.add(fleet.site.job(job_id).lease_expires_at)
        return len(seen) > 2

    fleet.site.wait(renewed_often, "the lease is renewed more than once")
    stop(worker)
    job = fleet.site.job(job_id)
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    assert fleet.site.event_names(job_id) == ["enqueued", "claimed", "released"]


def test_it_honours_a_cancel_and_a_time_limit(fleet: Fleet) -> None:
    cancelled = fleet.enqueue({"seconds": 600})
    worker = fleet.worker()
    fleet.begun(cancelled)
    fleet.site.store.cancel([cancelled])
    fleet.site.wait_for_state(cancelled, State.CANCELLED)
    limited = fleet.enqueue({"seconds": 600}, timeout_seconds=0.3, retry=ONCE)
    assert (fleet.site.wait_for_state(limited, State.RETRYABLE).last_error or {})["code"] == "timeout"
    stop(worker)


def test_what_it_ran_when_it_was_killed_is_recovered(fleet: Fleet) -> None:
    job_id = fleet.enqueue({"seconds": 600, "text": 1})
    killed = fleet.worker()
    fleet.begun(job_id)
    left = [child.pid for child in psutil.Process(killed.pid).children(recursive=True)]
    killed.kill()
    fleet.site.wait(lambda: all(map(gone, left)), "what it started notices and ends")
    end_lease(fleet.site, job_id)
    fleet.worker()
    fleet.site.wait(lambda: fleet.site.job(job_id).attempt == 2, "the other one has it")
    assert fleet.site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed"]
    fleet.site.store.cancel([job_id])
    fleet.site.wait_for_state(job_id, State.CANCELLED)


def end_lease(site: Site, job_id: str) -> None:
    """As if its time were over."""
    by_hand = ByHand(site.url)
    by_hand(f"UPDATE holdfast_jobs SET lease_expires_at = '2020-01-01 00:00:00.000000' WHERE id = '{job_id}'")
    by_hand.engine.dispose()
    site.wait(
        lambda: site.job(job_id).state is not State.RUNNING or bool(site.store.reap("test", period=0.0)), "it is reaped"
    )


def test_one_that_waits_for_work_ends_at_once(fleet: Fleet, waiting: Callable[[WorkerProcess], None]) -> None:
    worker = fleet.worker()
    waiting(worker)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.fixture
def waiting(site: Site) -> Callable[[WorkerProcess], None]:
    """Until it holds a connection to the control plane, or its curl does."""

    def connected(worker: WorkerProcess) -> bool:
        try:
            process = psutil.Process(worker.pid)
            family = [process, *process.children(recursive=True)]
            return any(link.status == psutil.CONN_ESTABLISHED for member in family for link in member.net_connections())
        except psutil.NoSuchProcess:
            return False

    return lambda worker: site.wait(lambda: connected(worker), "it asks for work")
