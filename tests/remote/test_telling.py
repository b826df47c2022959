"""What the remote store tells: log lines under their leases, and no more of an app than its token may say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from holdfast.domain.errors import NotAllowed
from holdfast.domain.job import Claimed
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Report, Succeeded
from holdfast.domain.schedule import Declaration
from holdfast.remote.leases import Leases
from holdfast.remote.store import RemoteStore
from holdfast.wiring.http import open_control_plane
from tests.serve.grounds import Served
from tests.servers.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def token(served: Served) -> str:
    return served.new_token("worker", queues=("mine",))


@pytest.fixture
def remote(served: Served, token: str) -> Iterator[RemoteStore]:
    remote = open_control_plane(served.url, token, timeout_seconds=DEADLINE_SECONDS)
    yield remote
    remote.close()


@pytest.fixture
def beside(served: Served, token: str) -> Iterator[RemoteStore]:
    """Another store of the same worker."""
    beside = open_control_plane(served.url, token, timeout_seconds=DEADLINE_SECONDS)
    yield beside
    beside.close()


def line(job: Claimed, number: int) -> LogLine:
    return LogLine(job.job_id, job.attempt, number, datetime.now(UTC), Stream.LOG, f"line {number}")


def test_lines_are_shown_with_their_leases_also_behind_the_report(
    served: Served, remote: RemoteStore, beside: RemoteStore
) -> None:
    served.enqueue("mine", 2)
    jobs = remote.claim("w", 2)
    beside.append_logs([line(job, 1) for job in jobs])
    remote.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded(), "w") for job in jobs])
    beside.append_logs([line(job, 2) for job in jobs])
    assert [len(served.store.logs(job.job_id)) for job in jobs] == [2, 2]
    [unknown] = served.enqueue("other")
    strange = LogLine(unknown, 1, 1, datetime.now(UTC), Stream.LOG, "not mine")
    beside.append_logs([strange, line(jobs[0], 3)])
    assert [len(served.store.logs(job_id)) for job_id in (unknown, jobs[0].job_id)] == [0, 3]


def test_only_the_newest_leases_are_remembered(served: Served) -> None:
    served.enqueue("many", 3)
    jobs = served.store.claim("w", 3, ["many"])
    leases = Leases(most=2)
    leases.remember(jobs)
    shown = leases.shown([job.attempt_id for job in jobs])
    assert {lease["attempt_id"]: lease["lease_token"] for lease in shown} == {
        job.attempt_id: job.lease_token for job in jobs[1:]
    }


def test_a_worker_of_one_queue_announces_what_is_its_own_of_a_whole_app(served: Served, remote: RemoteStore) -> None:
    queues = ["mine", "theirs", "mine", "theirs", "mine"]
    tasks = [TaskInfo(f"task-{number}", defaults={"queue": queue}) for number, queue in enumerate(queues)]
    with pytest.raises(NotAllowed, match="not announced: task-1, task-3"):
        remote.announce(tasks)
    assert [task.name for task in served.store.announced_tasks()] == ["task-0", "task-2", "task-4"]
    remote.announce(tasks)  # which is told once

    declared = [Declaration(name=f"every-{task.name}", task=task.name, every_seconds=60.0) for task in tasks]
    failures = remote.announce_schedules(declared)
    assert [failure.schedule for failure in failures] == ["every-task-1", "every-task-3"]
    assert len(served.store.schedules()) == 3
    remote.keep_schedules(declared)
