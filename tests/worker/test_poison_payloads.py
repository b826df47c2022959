"""Payloads that a raw INSERT can store and no JSON parser of ours decodes: the job fails alone, wherever it is read."""

import json
import uuid

import httpx
import pytest

from holdfast import App
from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.spec import MAX_STORED_DEPTH
from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.acceptance.command_line import InProcess
from tests.chaos.databases import query
from tests.remote.conftest import fleet
from tests.remote.fleet import Fleet
from tests.rq.station import Station
from tests.serve.grounds import new_token
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site

__all__ = ["fleet"]

POISON = {
    "digits": '{"a":' + "9" * 5_000 + "}",
    "nested": '{"a":' + "[" * 990 + "]" * 990 + "}",
    "nested-twice-the-limit": '{"a":' + "[" * 2 * MAX_STORED_DEPTH + "]" * 2 * MAX_STORED_DEPTH + "}",
    "large": '{"a":1e999}',
    "surrogate": '{"a":"\\ud800"}',
    "lines": '{\n"a":' + "9" * 5_000 + "\n}",
}
ON_SQLITE = [name for name in POISON if name != "nested-twice-the-limit"]  # it reads a thousand levels
TASKS = """
    @app.task
    def function(a: object = None) -> str:
        return "ran"

    @app.task
    async def coroutine(a: object = None) -> str:
        return "ran"

    app.command("program", ["true"])
"""


def poison(site: Site, *tasks: str) -> list[str]:
    """One job of each kind of payload and each task, put in by hand."""
    kinds = ON_SQLITE if site.is_sqlite else list(POISON)
    ids = []
    for task in tasks:
        for kind in kinds:
            ids.append(str(uuid.uuid4()))
            values = f"'{ids[-1]}', '{task}', '{POISON[kind]}'"
            query(site.url, f"INSERT INTO holdfast_jobs (id, task, payload) VALUES ({values})")
    return ids


def check_failed_alone(site: Site, bad: list[str], good: list[str]) -> None:
    site.wait_for_counts(failed=len(bad), succeeded=len(good))
    for job_id in bad:
        job = site.job(job_id)
        assert (job.last_error or {})["code"] == "invalid_arguments"
        assert (job.attempt, job.failures, job.crashes) == (1, 1, 0)
        assert "undecodable" in job.payload
    assert {site.job(job_id).attempt for job_id in good} == {1}


def test_poison_payload_fails_only_its_own_job(site: Site) -> None:
    site.tasks(TASKS)
    tasks = ("function", "coroutine", "program")
    good = [job_id for task in tasks for job_id in site.enqueue_many(task, 3)]
    bad = poison(site, *tasks)
    good += [job_id for task in tasks for job_id in site.enqueue_many(task, 3)]
    site.drain("--processes", "1", "--async-slots", "2")
    check_failed_alone(site, bad, good)


def test_poison_payload_fails_only_its_own_job_over_http(fleet: Fleet) -> None:
    fleet.tasks(TASKS)
    good = fleet.enqueue_many("function", 3)
    bad = poison(fleet, "function")
    good += fleet.enqueue_many("function", 3)
    plane = fleet.plane()
    claim = {"worker_id": "raw", "limit": 4, "streams": ["default"], "tasks": ["function"]}
    headers = {"Authorization": f"Bearer {fleet.token}"}
    answer = httpx.post(f"{plane.url}/internal/worker/claim", json=claim, headers=headers, timeout=DEADLINE_SECONDS)
    assert answer.status_code == 200, answer.text
    claimed = [job["job_id"] for job in answer.json()["jobs"]]
    assert set(claimed) <= set(good)
    for job in answer.json()["jobs"]:
        lease = {name: job[name] for name in ("job_id", "attempt_id", "lease_token")}
        done = httpx.post(
            f"{plane.url}/internal/worker/complete",
            json={"worker_id": "raw", "result": None, **lease},
            headers=headers,
            timeout=DEADLINE_SECONDS,
        )
        assert done.status_code == 200, done.text
    fleet.remote_worker(plane.url)
    check_failed_alone(fleet, bad, good)


def test_poison_payload_fails_only_its_own_job_inline(site: Site) -> None:
    app = App(site.url)

    @app.task
    def function(a: object = None) -> str:
        return f"ran with {a}"

    app.command("program", ["true"])
    good = [*site.enqueue_many("function", 2), *site.enqueue_many("program", 2)]
    bad = poison(site, "function", "program")
    app.work()
    app.close()
    check_failed_alone(site, bad, good)


def test_poison_payload_fails_only_its_own_job_of_a_redis_stream(site: Site, valkey_server: ValkeyEndpoint) -> None:
    site.tasks(TASKS)
    good = site.enqueue_many("function", 3)
    bad = poison(site, "function")
    site.worker("--processes", "1", "--redis", valkey_server.url)
    check_failed_alone(site, bad, good)


def test_poison_payload_fails_only_its_own_job_of_an_rq_queue(sqlite_site: Site, valkey_server: ValkeyEndpoint) -> None:
    station = Station(sqlite_site, valkey_server.url)
    try:
        bad = poison(sqlite_site, "note")[:2]
        good = [station.enqueue("note", {"name": "n"})]
        messages = [station.send(job_id) for job_id in (*bad, *good)]
        station.rq_worker("--burst")
        for message in messages:
            station.answer(message)
        for job_id in bad:
            assert (sqlite_site.job(job_id).last_error or {})["code"] == "invalid_arguments"
        assert sqlite_site.job(good[0]).state is State.SUCCEEDED
    finally:
        station.close()


def test_payload_that_is_not_utf8_fails_only_its_own_job(sqlite_site: Site) -> None:
    """SQLite takes any bytes as text."""
    sqlite_site.tasks(TASKS)
    good, bad = sqlite_site.enqueue_many("function", 3), str(uuid.uuid4())
    payload = b'{"a":"\xff"}'.hex()
    values = f"'{bad}', 'function', CAST(X'{payload}' AS TEXT)"
    query(sqlite_site.url, f"INSERT INTO holdfast_jobs (id, task, payload) VALUES ({values})")
    good += sqlite_site.enqueue_many("function", 3)
    assert "undecodable" in sqlite_site.job(bad).payload
    sqlite_site.drain("--processes", "1")
    check_failed_alone(sqlite_site, [bad], good)


def test_blob_in_column_of_text_stops_no_other_job(sqlite_site: Site) -> None:
    """Drivers of other languages store bytes as a BLOB."""
    sqlite_site.tasks(TASKS)
    good, blob = sqlite_site.enqueue_many("function", 3), str(uuid.uuid4())
    payload = b'{"a":1}'.hex()
    values = f"'{blob}', 'function', X'{payload}', X'ff'"
    query(sqlite_site.url, f"INSERT INTO holdfast_jobs (id, task, payload, traceparent) VALUES ({values})")
    assert sqlite_site.job(blob).payload == {"a": 1}
    sqlite_site.drain("--processes", "1")
    assert {sqlite_site.job(job_id).state for job_id in [*good, blob]} == {State.SUCCEEDED}
    run = InProcess(sqlite_site.folder, sqlite_site.url)
    assert len(run("jobs", "list", "--json").succeeded().document["jobs"]) == 4


def test_poison_payload_hides_no_job_from_readers(fleet: Fleet) -> None:
    good = fleet.enqueue("function", {"a": 1})
    bad = poison(fleet, "function")
    plane = fleet.plane()
    token = new_token(fleet.store, "viewer")
    headers = {"Authorization": f"Bearer {token}"}
    listed = httpx.get(f"{plane.url}/api/v1/jobs", headers=headers, params={"limit": 100}, timeout=DEADLINE_SECONDS)
    assert {job["id"] for job in listed.json()["jobs"]} == {good, *bad}
    run = InProcess(fleet.folder, fleet.url)
    assert len(run("jobs", "list", "--json").succeeded().document["jobs"]) == len(bad) + 1
    for job_id in bad:
        shown = httpx.get(f"{plane.url}/api/v1/jobs/{job_id}", headers=headers, timeout=DEADLINE_SECONDS)
        assert "undecodable" in shown.json()["payload"], shown.text
        assert "undecodable" in json.dumps(run("jobs", "show", job_id, "--json").succeeded().document)
        with pytest.raises(InvalidInput, match="payload"):
            fleet.store.replay(job_id)
    with httpx.Client(base_url=plane.url, follow_redirects=True, timeout=DEADLINE_SECONDS) as browser:
        signed = browser.post("/sign-in", data={"token": token})
        assert signed.status_code == 200, signed.text
        for path in ("/jobs", *(f"/jobs/{job_id}" for job_id in bad)):
            page = browser.get(path)
            assert page.status_code == 200
            assert (good if path == "/jobs" else "undecodable") in page.text
