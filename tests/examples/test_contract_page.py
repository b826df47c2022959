"""docs/contract.md: every exchange on the page is one that the server really has."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.domain.job import NewJob
from tests.serve.grounds import WORKER, Served, serving

PAGE = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")
# What is another each time; of these only the type is compared.
OTHERS = ("id", "job_id", "attempt_id", "lease_token", "lease_expires_at", "waited_ms", "due_seconds")


def example(kind: str, name: str) -> dict[str, Any]:
    [found] = re.findall(rf"<!-- {kind} {name} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    value: dict[str, Any] = json.loads(found)
    return value


def without_others(value: Any) -> Any:
    match value:
        case dict():
            return {name: type(part) if name in OTHERS else without_others(part) for name, part in value.items()}
        case list():
            return [without_others(part) for part in value]
    return value


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('page') / 'jobs.db'}") as served:
        yield served


@pytest.fixture
def worker(served: Served) -> Iterator[httpx.Client]:
    with served.client("worker") as client:
        yield client


def enqueue(served: Served) -> str:
    return served.store.enqueue(NewJob(task="resize", payload=example("answer", "claim")["payload"])).id


def say(worker: httpx.Client, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The request of the page with the job and the lease of this test, and the server's answer, which is the page's."""
    body = {**example("request", name), **given}
    answer = worker.post(f"{WORKER}/{name}", json=body)
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    assert without_others(value) == without_others(example("answer", name))
    return value


@pytest.mark.parametrize("report", ["complete", "fail", "release"])
def test_each_exchange_is_as_on_the_page(served: Served, worker: httpx.Client, report: str) -> None:
    job_id = enqueue(served)
    job = say(worker, "claim", {"request_id": f"for {report}"})
    assert job["job_id"] == job_id
    lease = {name: job[name] for name in ("job_id", "attempt_id", "lease_token")}
    say(worker, "heartbeat", {"job_id": job_id, "lease_token": job["lease_token"]})
    first = say(worker, report, lease)
    again = worker.post(f"{WORKER}/{report}", json={**example("request", report), **lease}).json()
    assert again == first
    served.store.cancel([job_id])


def test_what_a_job_may_want_while_it_runs_is_as_on_the_page(served: Served, worker: httpx.Client) -> None:
    enqueue(served)
    served.store.set_source(example("request", "source/enter")["source"], max_concurrent=1)
    job = say(worker, "claim", {"request_id": "for what it wants"})
    lease = {name: job[name] for name in ("attempt_id", "lease_token")}
    for name in ("records", "source/enter", "source/leave", "cache/put", "cache/get"):
        say(worker, name, lease)
    again = worker.post(f"{WORKER}/records", json={**example("request", "records"), **lease}).json()
    assert [record["kept"] for record in again["records"]] == ["existing", "replaced"]
    worker.post(f"{WORKER}/complete", json={**example("request", "complete"), **lease, "job_id": job["job_id"]})


def test_a_refusal_is_as_on_the_page(worker: httpx.Client) -> None:
    answer = worker.post(f"{WORKER}/complete", json={**example("request", "complete"), "attempt_id": "x"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == example("problem", "422")


def test_asking_again_for_no_task_returns_what_the_request_was_given(served: Served, worker: httpx.Client) -> None:
    enqueue(served)
    ask = example("request", "claim") | {"request_id": "stopped"}
    job = worker.post(f"{WORKER}/claim", json=ask).json()
    enqueue(served)
    again = worker.post(f"{WORKER}/claim", json={**ask, "tasks": []}).json()
    assert (again["job_id"], again["lease_token"]) == (job["job_id"], job["lease_token"])
    nothing = worker.post(f"{WORKER}/claim", json={**ask, "tasks": [], "request_id": "other", "max_wait_ms": 0}).json()
    assert nothing["claimed"] is False


def test_the_commands_on_the_page_run(served: Served, worker: httpx.Client) -> None:
    [commands] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    job_id = served.store.enqueue(NewJob(task="by-hand", priority=100)).id
    job = worker.post(f"{WORKER}/claim", json={"worker_id": "test", "streams": None, "tasks": ["by-hand"]}).json()
    environment = {
        **os.environ,
        "HOLDFAST_URL": served.url,
        "HOLDFAST_TOKEN": served.tokens["worker"],
        "JOB": job_id,
        "LEASE": job["lease_token"],
    }
    served.enqueue("default")
    done = subprocess.run(["bash", "-c", commands], env=environment, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.replace("}{", "}\n{").splitlines()]
    assert [answer.get("claimed", answer.get("ok")) for answer in answers] == [True, True, True]
    assert served.store.job(job_id).result == 42
