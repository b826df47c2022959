"""`holdfast --database https://…` with HOLDFAST_TOKEN: the commands whose questions a control plane answers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.acceptance.command_line import InProcess
from tests.serve.grounds import Served

# What differs between databases is seen elsewhere: these are about the other side.
pytestmark = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def holdfast(served: Served, tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, served.url)


def test_jobs_are_enqueued_shown_and_operated_on(served: Served, holdfast: InProcess) -> None:
    token, queue = served.tokens["client"], f"queue-{uuid.uuid4().hex[:12]}"

    made = holdfast("enqueue", "send", '{"to": "ann"}', "--queue", queue, "--json", HOLDFAST_TOKEN=token)
    job_id = json.loads(made.out)["id"]
    shown = json.loads(holdfast("jobs", "show", job_id, "--json", HOLDFAST_TOKEN=token).out)
    cancelled = holdfast("jobs", "cancel", job_id, HOLDFAST_TOKEN=token)
    listed = json.loads(holdfast("jobs", "list", "--queue", queue, "--json", HOLDFAST_TOKEN=token).out)
    paused = holdfast("queues", "pause", queue, HOLDFAST_TOKEN=token)

    assert (shown["payload"], [event["event"] for event in shown["events"]]) == ({"to": "ann"}, ["enqueued"])
    assert [job["state"] for job in listed["jobs"]] == ["cancelled"]
    assert (cancelled.code, paused.code) == (0, 0)
    assert served.store.queue_settings(queue).paused_at is not None


def test_what_a_control_plane_cannot_do_says_so(served: Served, holdfast: InProcess) -> None:
    for command in (["verify"], ["retention"], ["db", "current"], ["dead", "list"]):
        done = holdfast(*command, HOLDFAST_TOKEN=served.tokens["client"])
        assert done.code == 2, command
        assert "database itself" in done.err
    without = holdfast("stuck")
    assert (without.code, "wants a token" in without.err) == (2, True)


def test_a_worker_has_one_store(holdfast: InProcess) -> None:
    done = holdfast("worker", "tasks:app", "--control-plane", "http://127.0.0.1:1", "--token", "hf_x")

    assert (done.code, "give one of them" in done.err) == (2, True)
