"""What a worker shows of itself stays small, however much it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from holdfast.domain.job import Claimed
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.spec import encode_json
from holdfast.domain.timing import choose
from holdfast.runners.pool import Pool
from holdfast.serve.contract.telling_models import MOST_DETAIL_BYTES
from holdfast.worker.leases import LeaseBook
from holdfast.worker.showing import MOST_JOBS, detail_of

JOB = "01890a5d-ac96-774b-bcce-b3020900%04d"


@dataclass
class Runner:
    pid: int
    jobs: dict[str, bool] = field(default_factory=dict)

    def memory(self) -> int:
        return 1024 * self.pid


def shown(runners: list[Runner], book: LeaseBook, now: float) -> dict[str, Any]:
    return detail_of(cast(Pool, runners), book, now)


def running(book: LeaseBook, number: int, task: str, started_at: float) -> str:
    job = Claimed(
        job_id=JOB % number, task=task, task_version=None, queue="q", source=None, payload_json="{}", attempt=1,
        failures=0, crashes=0, max_attempts=3, max_crashes=3, timeout_seconds=None, lease_seconds=60.0,
        traceparent=None, lease_token="t",
    )  # fmt: skip
    held = book.add(job, TaskInfo(task), started_at)
    held.started_at = started_at
    return held.id


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(choose(60.0))


def test_memory_is_told_of_the_worker_and_of_each_runner_with_what_it_runs(book: LeaseBook) -> None:
    started = running(book, 1, "<b>", 100.0)
    detail = shown([Runner(10, {started: True, running(book, 2, "later", 0.0): False}), Runner(20)], book, 130.0)
    first, second = detail["runners"]
    assert detail["memory_kb"] == detail["supervisor_kb"] + 30
    assert detail["supervisor_kb"] > 1000, f"this process ({os.getpid()}) is larger than that"
    assert (first["pid"], first["memory_kb"], first["jobs"]) == (10, 10, 2)
    [job] = first["running"]
    assert (job["job_id"], job["task"]) == (JOB % 1, "<b>")
    assert second["running"] == []


def test_however_many_run_the_row_fits_through_a_control_plane(book: LeaseBook) -> None:
    def jobs(runner: int) -> dict[str, bool]:
        return {running(book, 100 * runner + number, "\U0001f600" * 200, 0.0): True for number in range(50)}

    runners = [Runner(100_000 + number, jobs(number)) for number in range(90)]
    detail = shown(runners, book, 1.0)
    assert len(encode_json(detail).encode()) <= MOST_DETAIL_BYTES
    told = [len(runner["running"]) for runner in detail["runners"]]
    assert (sum(told), max(told)) == (MOST_JOBS, 1), "each of the first runners has one"
