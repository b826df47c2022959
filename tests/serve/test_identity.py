"""Run identity over HTTP and on the command line: the same hashes, the same refusals, one job to a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import pytest

from holdfast import App
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.outcome import Succeeded
from tests.acceptance.command_line import InProcess
from tests.chaos.test_uniqueness import users_engine
from tests.serve.command_lines import holdfast, over_http
from tests.serve.grounds import Served
from tests.serve.steps import done
from tests.unit.vectors import HASHES, REFUSED, VECTORS

__all__ = ["holdfast", "over_http"]

JOBS = "/api/v1/jobs"
AS_JSON = {"Content-Type": "application/json"}
POSTERS = 25


def hashes(served: Served, ids: list[str]) -> list[str | None]:
    return [served.store.job(job_id).spec_hash for job_id in ids]


def count(served: Served) -> int:
    return sum(served.store.counts().values())


# The shared vectors


def test_created_over_http(served: Served, client: httpx.Client, queue: str) -> None:
    answers = [client.post(JOBS, content=vector.body(queue=queue), headers=AS_JSON) for vector in VECTORS]
    assert hashes(served, [answer.raise_for_status().json()["id"] for answer in answers]) == HASHES


def test_created_over_http_in_a_batch(served: Served, client: httpx.Client, queue: str) -> None:
    body = b'{"jobs": [' + b", ".join(vector.body(queue=queue) for vector in VECTORS) + b"]}"
    answer = client.post(f"{JOBS}/batch", content=body, headers=AS_JSON).raise_for_status().json()
    assert hashes(served, [job["id"] for job in answer["jobs"]]) == HASHES


def test_enqueued_by_the_library_over_http(served: Served, queue: str) -> None:
    app = App(served.url, token=served.tokens["client"])
    jobs = [vector.new_job(queue=queue) for vector in VECTORS]
    assert hashes(served, [answer.id for answer in app.store.enqueue_many(jobs)]) == HASHES
    assert hashes(served, [app.store.enqueue(jobs[-1]).id]) == HASHES[-1:]
    app.close()


def test_enqueued_on_the_command_line(served: Served, holdfast: InProcess, queue: str) -> None:
    ids = []
    for vector in VECTORS:
        version = () if vector.version is None else ("--version", vector.version)
        done = holdfast("enqueue", vector.task, "-", "--queue", queue, *version, stdin=vector.payload)
        ids.append(done.succeeded().out.strip())
    assert hashes(served, ids) == HASHES


def test_hashed_on_the_command_line_without_a_store(tmp_path: Path) -> None:
    alone = InProcess(tmp_path)
    for vector in VECTORS:
        version = () if vector.version is None else ("--version", vector.version)
        said = alone("hash", vector.task, vector.payload, *version).succeeded()
        assert said.out == f"{vector.canonical}\n{vector.spec_hash}\n"
    document = alone("hash", "run", '{"a": 1.0}', "--json").succeeded().document
    assert document["canonical"] == '{"payload":{"a":1},"task":"run","version":null}'
    assert alone("hash", "run", '{"a": 1}').out.endswith(document["spec_hash"] + "\n")
    assert list(tmp_path.iterdir()) == []


def test_refused_everywhere_alike(served: Served, client: httpx.Client, holdfast: InProcess, queue: str) -> None:
    before = count(served)
    for refused in REFUSED:
        body = f'{{"task": "run", "queue": "{queue}", "payload": {refused.payload}}}'.encode()
        answer = client.post(JOBS, content=body, headers=AS_JSON)
        assert answer.status_code == 422, (refused.name, answer.text)
        batch = client.post(f"{JOBS}/batch", content=b'{"jobs": [' + body + b"]}", headers=AS_JSON)
        assert batch.status_code == 422, (refused.name, batch.text)
        holdfast("enqueue", "run", "-", "--queue", queue, stdin=refused.payload).refused("payload", refused.rule)
        holdfast("hash", "run", "-", stdin=refused.payload).refused("payload", refused.rule)
    assert count(served) == before
    holdfast("enqueue", "run", '{"a": "\udcff"}').refused("payload", "not UTF-8")


# One job to a key


@contextmanager
def rolling_back(served: Served, key: str, start: Barrier) -> Iterator[list[Enqueued]]:
    """As many transactions of users who enqueue the same key, see an answer, and change their minds."""
    told: list[Enqueued] = []

    def enqueue_and_roll_back(_number: int) -> None:
        with engine.connect() as connection:
            start.wait()
            with connection.begin() as transaction:
                answer = served.store.enqueue(NewJob(task="once", unique_key=key), connection=connection)
                transaction.rollback()
        if not answer.created:
            told.append(answer)

    with users_engine(served.database_url) as engine, ThreadPoolExecutor(POSTERS) as threads:
        rolled = [threads.submit(enqueue_and_roll_back, number) for number in range(POSTERS)]
        yield told
        for one in rolled:
            one.result(60)


@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/batch"], ids=["single", "batch"])
def test_of_fifty_who_want_a_key_half_over_http_and_half_rolled_back_one_gets_it(
    served: Served, client: httpx.Client, queue: str, path: str
) -> None:
    start = Barrier(2 * POSTERS)
    wanted = {"task": "once", "unique_key": queue}
    body: dict[str, Any] = {"jobs": [wanted, {"task": "other"}, wanted]} if path.endswith("batch") else wanted

    def post(_number: int) -> list[dict[str, Any]]:
        start.wait()
        answer = client.post(path, json=body).raise_for_status().json()
        return [answer["jobs"][0], answer["jobs"][2]] if "jobs" in answer else [answer]

    with rolling_back(served, queue, start) as told, ThreadPoolExecutor(POSTERS) as threads:
        answers = [answer for answers in threads.map(post, range(POSTERS)) for answer in answers]
    [made] = [answer["id"] for answer in answers if answer["created"]]
    assert {answer["id"] for answer in answers} == {made}
    assert served.store.job(made).unique_key == queue
    assert {answer.id for answer in told} <= {made}, "who was shown somebody else's job was shown one that exists"


def test_the_command_line_asks_for_uniqueness_and_reuse_too(
    served: Served, holdfast: InProcess, over_http: InProcess, queue: str
) -> None:
    for command in (holdfast, over_http):
        key = f"{queue}-{command is holdfast}"
        first = command("enqueue", "once", "--unique-key", key, "--json").succeeded().document
        again = command("enqueue", "once", '{"a": 1}', "--unique-key", key, "--json").succeeded().document
        assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
        payload = json.dumps({"for": key})
        ran = done(served.store, NewJob(task="once", version="3", payload={"for": key}), Succeeded(7))
        reused = command("enqueue", "once", payload, "--version", "3", "--reuse", "1h", "--json").succeeded().document
        assert reused == {"id": ran, "created": False, "state": "succeeded"}
        assert command("jobs", "result", reused["id"]).succeeded().out == "7\n"
        other = command("enqueue", "once", payload, "--version", "4", "--reuse", "1h", "--json").succeeded().document
        assert other["created"]
    holdfast("enqueue", "once", "--reuse", "0s").refused("reuse", "more than zero")
