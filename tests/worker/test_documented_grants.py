"""A role with exactly the grants that docs/postgres.md lists can run everything but `db upgrade`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from holdfast.domain.findings import Severity
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.retention import Group, Kept
from holdfast.wiring.http import open_control_plane
from tests.chaos.databases import opened, query
from tests.doctor.conftest import examined
from tests.remote.fleet import Fleet
from tests.servers.waiting import DEADLINE_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "postgres.md"
TASK = """
@app.task
def work() -> str:
    print("a line of the log")
    return "done"
"""


def documented_grants() -> list[str]:
    found = re.search(r"<!-- grants -->\n```sql\n(.*?)```\n<!-- /grants -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return [statement for part in found[1].split(";") if (statement := part.strip())]


@pytest.fixture
def worker_url(postgres_url: str) -> Iterator[str]:
    role = f"worker_{uuid.uuid4().hex}"
    query(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'few-rights'")
    for statement in documented_grants():
        query(postgres_url, re.sub(r"\bholdfast_worker\b", role, statement))
    yield make_url(postgres_url).set(username=role, password="few-rights").render_as_string(hide_password=False)
    query(postgres_url, f"DROP OWNED BY {role}")
    query(postgres_url, f"DROP ROLE {role}")


def test_worker_and_control_plane_run_with_the_documented_grants(worker_url: str, tmp_path: Path) -> None:
    with Fleet(tmp_path, worker_url) as fleet:
        fleet.tasks(TASK)
        plane = fleet.plane()
        direct, remote = fleet.worker("--queues", "direct"), fleet.remote_worker(plane.url, "--queues", "remote")
        fleet.enqueue("work", queue="direct")
        client = open_control_plane(plane.url, fleet.token, timeout_seconds=DEADLINE_SECONDS)
        client.enqueue(NewJob(task="work", queue="remote"))
        fleet.wait_for_counts(succeeded=2)
        client.close()
        for process in (direct, remote):
            assert process.stop() == 0, process.text()
        assert "permission denied" not in direct.text() + remote.text() + plane.text()


def test_retention_runs_with_the_documented_grants(worker_url: str) -> None:
    with opened(worker_url) as store:
        job = store.enqueue(NewJob(task="work"))
        store.cancel([job.id])
        assert store.prune(Group(Kept.JOBS, "default", State.CANCELLED, 0.0), 500).ids == (job.id,)
        assert store.retire(Group(Kept.HISTORIES, "default", State.CANCELLED, 0.0), 500).jobs == 1
    assert query(worker_url, "SELECT count(*) FROM holdfast_events") == [(0,)]


def test_doctor_finds_no_missing_right_with_the_documented_grants(worker_url: str, tmp_path: Path) -> None:
    rights = [finding for finding in examined(worker_url, tmp_path) if finding.check == "rights"]
    assert [finding.severity for finding in rights] == [Severity.OK]
