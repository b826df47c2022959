"""A store that has lost the commit of a claim, as after the promotion of an asynchronous standby."""

import sqlite3

import psycopg
import pytest
from sqlalchemy import make_url

from holdfast.domain.lifecycle import State
from holdfast.stores import guards
from tests.remote.conftest import fleet
from tests.remote.fleet import Fleet
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site

__all__ = ["fleet"]

# Each execution says its number and waits until it is told to return it.
TASKS = """
    @app.task{options}
    def count() -> int:
        with open("executions", "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        mine = len(Path("executions").read_text().splitlines())
        while not Path(f"end-{{mine}}").exists():
            time.sleep(0.02)
        return mine

    @app.task
    def nothing() -> None: ...
"""
LOST = (
    "UPDATE holdfast_jobs SET state = 'pending', attempt = 0, seq = 1, transition = 'enqueued', lease_owner = NULL,"
    " lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, started_at = NULL, heartbeat_at = NULL"
    " WHERE id = '{id}'",
    "DELETE FROM holdfast_events WHERE job_id = '{id}' AND seq > 1",
)


def lose_claim(site: Site, job_id: str) -> None:
    """Write past the guards what the database was before the claim."""
    statements = [statement.format(id=job_id) for statement in LOST]
    if not site.is_sqlite:
        with psycopg.connect(site.url.replace("+psycopg", "")) as connection:
            connection.execute("SET LOCAL session_replication_role = replica")
            for statement in statements:
                connection.execute(statement)
        return
    file = sqlite3.connect(str(make_url(site.url).database), isolation_level=None, timeout=DEADLINE_SECONDS)
    triggers = file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for statement in (
        "BEGIN IMMEDIATE",
        *(f"DROP TRIGGER {name}" for (name,) in triggers),
        *statements,
        *guards.statements("sqlite"),
        "COMMIT",
    ):
        file.execute(statement)
    file.close()


def check_second_execution_counts(site: Site, job_id: str) -> None:
    [first] = site.wait_for_pids("executions")
    lose_claim(site, job_id)
    site.enqueue("nothing")  # wakes the worker
    site.wait(lambda: len(site.wait_for_pids("executions")) == 2, "the same worker runs the attempt again")
    site.tell("end-1")
    site.wait_gone([first], "the first execution is killed")
    assert site.job(job_id).state is State.RUNNING, "the result of the first execution was recorded"
    site.tell("end-2")
    job = site.wait_for_state(job_id, State.SUCCEEDED)
    assert (job.result, job.attempt, job.crashes, job.failures) == (2, 1, 0, 0)
    assert site.event_names(job_id) == ["enqueued", "claimed", "succeeded"]


@pytest.mark.parametrize("options", ["", '(on_lost_lease="continue")'])
def test_superseded_execution_is_killed_and_its_result_refused(site: Site, options: str) -> None:
    site.tasks(TASKS.format(options=options))
    job_id = site.enqueue("count")
    site.worker("--processes", "2")
    check_second_execution_counts(site, job_id)


def test_superseded_execution_is_killed_and_its_result_refused_over_http(fleet: Fleet) -> None:
    fleet.tasks(TASKS.format(options=""))
    job_id = fleet.enqueue("count", lease_seconds=60.0)
    fleet.remote_worker(fleet.plane().url, "--processes", "2")
    check_second_execution_counts(fleet, job_id)
