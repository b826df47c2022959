"""The same worker over HTTP: it runs jobs, tells of them, and knows no database."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from holdfast.domain.lifecycle import State
from tests.remote.fleet import Fleet
from tests.serve.grounds import Served, serving
from tests.worker.lease_clock import LeaseClock
from tests.worker.site import WorkerProcess

# The command, and then the modules that it has loaded.
PROGRAM = "import sys; from holdfast.__main__ import run; assert run() == 0; print(*sys.modules)"
NOWHERE = "postgresql://nobody:wrong@127.0.0.1:1/none"
LEASE = 600.0

TASKS = """
    @app.task
    def child(number: int) -> int:
        print("child says", number)
        return number

    @app.task
    def parent(number: int, ctx: Context) -> str:
        ctx.progress(1, 2, "half way")
        return child.enqueue(number).id

    @app.task
    def finish_within(ctx: Context) -> None:
        ctx.complete_in(None, {})

    @app.task
    def wait_for(name: str) -> str:
        Path("started").write_text(str(os.getpid()))
        while not Path(name).exists():
            time.sleep(0.02)
        return name
"""


@pytest.fixture
def plane(sqlite_fleet: Fleet) -> Iterator[Served]:
    """In this process: the tests here are about workers."""
    with serving(sqlite_fleet.url, duties=True) as served:
        yield served


def test_it_runs_jobs_and_never_looks_for_a_database(sqlite_fleet: Fleet, plane: Served) -> None:
    """And its supervisor does not even load a library of databases."""
    sqlite_fleet.tasks(TASKS)
    parent = sqlite_fleet.enqueue("parent", {"number": 7})
    refused = sqlite_fleet.enqueue("finish_within")

    flags = ["worker", "tasks:app", "--drain", "--processes", "1", "--control-plane", plane.url]
    environment = sqlite_fleet.environment(HOLDFAST_TOKEN=sqlite_fleet.token, DATABASE_URL=NOWHERE)
    log = sqlite_fleet.folder / "worker.log"
    worker = WorkerProcess([sys.executable, "-c", PROGRAM, *flags], sqlite_fleet.folder, environment, log)
    sqlite_fleet.workers.append(worker)
    assert worker.wait() == 0, worker.text()
    loaded = {name.partition(".")[0] for name in worker.text().splitlines()[-1].split()}
    assert "holdfast" in loaded
    assert loaded & {"alembic", "psycopg", "sqlalchemy", "pydantic", "structlog"} == set()

    job = sqlite_fleet.job(parent)
    child = sqlite_fleet.job(job.result)
    assert (job.state, job.progress, child.state, child.result) == (
        State.SUCCEEDED,
        {"done": 1, "total": 2, "note": "half way"},
        State.SUCCEEDED,
        7,
    )
    assert [line.message for line in sqlite_fleet.store.logs(child.id)] == ["child says 7"]
    failed = sqlite_fleet.job(refused)
    assert failed.last_error is not None
    assert "works over HTTP" in failed.last_error["message"]
    [row] = sqlite_fleet.store.workers()
    assert (row.state, row.app) == ("stopped", "tasks:app")
    assert {task.name for task in sqlite_fleet.store.announced_tasks()} >= {"parent", "child"}
    for text in (worker.text(), repr(row), json.dumps(failed.last_error)):
        assert sqlite_fleet.token not in text
        assert "127.0.0.1:1/" not in text


def test_a_token_that_is_rotated_in_its_file_keeps_the_leases(sqlite_fleet: Fleet, plane: Served) -> None:
    issued = next(token for token in plane.store.tokens() if token.scopes == ("worker", "client"))
    file = sqlite_fleet.folder / "token"
    file.write_text(sqlite_fleet.token)
    sqlite_fleet.tasks(TASKS)
    job_id = sqlite_fleet.enqueue("wait_for", {"name": "go"}, lease_seconds=600.0)
    beating = {"LEASE_SECONDS": "600", "HOLDFAST_HEARTBEAT_SECONDS": "0.5"}
    worker = sqlite_fleet.remote_worker(plane.url, token=f"@{file}", **beating)
    sqlite_fleet.wait_for_file("started")

    renewed = plane.store.rotate_token(issued.name)
    file.write_text(renewed.text)
    rotated_at = plane.store.job(job_id).heartbeat_at
    sqlite_fleet.wait(
        lambda: plane.store.job(job_id).heartbeat_at != rotated_at, "a heartbeat comes with the new token"
    )
    sqlite_fleet.tell("go")

    job = sqlite_fleet.wait_for_state(job_id, State.SUCCEEDED)
    assert (job.attempt, job.crashes, job.failures) == (1, 0, 0)
    assert worker.stop() == 0
    assert renewed.text not in worker.text()


def test_a_worker_whose_token_was_revoked_ends_nothing_of_its_own_accord(sqlite_fleet: Fleet, plane: Served) -> None:
    """It is as if the store were away: it says so and asks again, its job is stopped before the lease is over, and
    another worker has it then."""
    issued = next(token for token in plane.store.tokens() if token.scopes == ("worker", "client"))
    sqlite_fleet.tasks(TASKS)
    job_id = sqlite_fleet.enqueue("wait_for", {"name": "go"}, lease_seconds=LEASE)
    clock = LeaseClock(sqlite_fleet.folder / "clock")
    worker = sqlite_fleet.remote_worker(plane.url, program=clock.program, HOLDFAST_HEARTBEAT_SECONDS="0.5")
    [pid] = sqlite_fleet.wait_for_pids("started")

    plane.store.revoke_token(issued.name)

    worker.wait_for_log("does not accept the token")
    clock.advance(LEASE)
    sqlite_fleet.wait_gone([pid], "the job is stopped, as its lease is not renewed")
    assert worker.running
    sqlite_fleet.expire_leases(job_id)
    sqlite_fleet.wait_for_state(job_id, State.PENDING)
    sqlite_fleet.tell("go")
    sqlite_fleet.token = plane.new_token("worker", "client")
    other = sqlite_fleet.remote_worker(plane.url)
    assert sqlite_fleet.wait_for_state(job_id, State.SUCCEEDED).attempt == 2
    assert sqlite_fleet.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]
    assert other.stop() == 0


def test_a_wrong_token_is_told_at_start(sqlite_fleet: Fleet, plane: Served) -> None:
    sqlite_fleet.tasks(TASKS)
    wrong = plane.new_token("client")

    worker = sqlite_fleet.remote_worker(plane.url, token=wrong)

    assert worker.wait() == 2
    assert "does not allow this to the token" in worker.text()
    assert wrong not in worker.text()


def test_an_idle_worker_waits_at_the_control_plane_and_stops(sqlite_fleet: Fleet, plane: Served) -> None:
    sqlite_fleet.tasks(TASKS)
    worker = sqlite_fleet.remote_worker(plane.url)

    def waiting() -> int:
        server = plane.control._server
        assert server is not None
        return server._plane.hub.waiting

    sqlite_fleet.wait(lambda: waiting() == 1, "the worker waits")
    job_id = sqlite_fleet.enqueue("child", {"number": 1})
    sqlite_fleet.wait_for_state(job_id, State.SUCCEEDED)
    sqlite_fleet.wait(lambda: waiting() == 1, "the worker waits again")

    assert worker.stop() == 0
    assert sqlite_fleet.counts() == {"succeeded": 1}
