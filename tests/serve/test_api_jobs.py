"""Create, get, list, cancel, requeue and replay over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from tests.serve.grounds import WORKER, Served

JOBS = "/api/v1/jobs"


@pytest.fixture
def viewer(served: Served) -> Iterator[httpx.Client]:
    with served.client("viewer") as client:
        yield client


def create(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post(JOBS, json={"task": "send", **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def finish(served: Served, job_id: str, *, well: bool = True) -> None:
    claimed = served.store.claim_job("ann", job_id)
    assert claimed is not None
    outcome = Succeeded({"sum": 3}) if well else Failed(JobError("bad", "it will never work", retryable=False))
    [answer] = served.store.settle([Report(job_id, claimed.attempt, claimed.lease_token, outcome, "ann")])
    assert answer.ok


def check_problem(answer: httpx.Response, status: int, *saying: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    for word in saying:
        assert word in problem["detail"], problem
    return problem


# Create


def test_a_job_goes_on_with_the_trace_of_its_request(client: httpx.Client, queue: str) -> None:
    header, own = f"00-{'a' * 32}-{'b' * 16}-01", f"00-{'c' * 32}-{'d' * 16}-00"

    def traceparent(said: str, **fields: Any) -> Any:
        created = client.post(JOBS, json={"task": "send", "queue": queue, **fields}, headers={"traceparent": said})
        return client.get(f"{JOBS}/{created.json()['id']}").json()["traceparent"]

    assert traceparent(header) == header
    assert traceparent(header, traceparent=own) == own
    assert traceparent("00-nonsense-01") is None
    many = client.post(f"{JOBS}/batch", json={"jobs": [{"task": "send"}] * 2}, headers={"traceparent": header}).json()
    found = [client.get(f"{JOBS}/{job['id']}").json()["traceparent"] for job in many["jobs"]]
    assert found == [header, header]


def test_a_created_job_has_what_was_asked_for(served: Served, client: httpx.Client, queue: str) -> None:
    created = create(
        client,
        payload={"to": "ann", "big": 2**70, "none": None},
        queue=queue,
        priority=5,
        delay_seconds=60,
        max_attempts=4,
        max_crashes=2,
        retry={"kind": "fixed", "base": 2},
        timeout_seconds=9.5,
        lease_seconds=30,
        version="3",
        unique_key="k" + queue,
        source="mail",
        webhook="https://example.com/told",
    )
    assert (created["created"], created["state"]) == (True, "pending")
    job = client.get(f"{JOBS}/{created['id']}").json()
    stored = served.store.job(created["id"])
    assert job["payload"] == stored.payload == {"to": "ann", "big": 2**70, "none": None}
    for name in ("queue", "priority", "max_attempts", "max_crashes", "timeout_seconds", "lease_seconds", "source"):
        assert job[name] == getattr(stored, name)
    assert (job["task_version"], job["retry"]["base"], job["lease_seconds"]) == ("3", 2.0, 30.0)
    assert job["webhook"]["url"] == "https://example.com/told"
    assert job["run_after"] > job["created_at"]
    assert job["run_after"].endswith("Z")


def test_creating_is_safe_to_retry_with_an_id(client: httpx.Client, queue: str) -> None:
    job_id = str(uuid.uuid4())
    wanted: dict[str, Any] = {"task": "send", "payload": {"n": 1}, "queue": queue, "id": job_id}
    first, again = client.post(JOBS, json=wanted), client.post(JOBS, json=wanted)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": job_id, "created": False, "state": "pending"}
    other = client.post(JOBS, json={**wanted, "payload": {"n": 2}})
    check_problem(other, 409, job_id)


def test_a_unique_job_is_answered_with_the_one_that_is_there(client: httpx.Client, queue: str) -> None:
    wanted = {"task": "send", "payload": {"for": queue}, "queue": queue, "unique": True}
    first = client.post(JOBS, json=wanted).json()
    again = client.post(JOBS, json=wanted)
    assert (again.status_code, again.json()["id"], again.json()["created"]) == (200, first["id"], False)


def test_a_success_that_is_young_enough_is_reused(served: Served, client: httpx.Client, queue: str) -> None:
    wanted = {"task": "send", "payload": {"for": queue}, "queue": queue, "reuse_seconds": 3600}
    first = client.post(JOBS, json=wanted).json()["id"]
    finish(served, first)
    again = client.post(JOBS, json=wanted)
    assert (again.status_code, again.json()) == (200, {"id": first, "created": False, "state": "succeeded"})


def test_an_announced_task_gives_its_defaults(served: Served, client: httpx.Client, queue: str) -> None:
    defaults = {"queue": queue, "max_attempts": 7, "lease_seconds": 33.0}
    served.store.announce([TaskInfo(f"task-{queue}", "v9", defaults=defaults)])
    job = served.store.job(create(client, task=f"task-{queue}", max_attempts=2)["id"])
    assert (job.queue, job.max_attempts, job.lease_seconds, job.task_version) == (queue, 2, 33.0, "v9")
    answer = client.post(f"{JOBS}/batch", json={"jobs": [{"task": f"task-{queue}"}, {"task": "send", "queue": queue}]})
    both = [served.store.job(item["id"]) for item in answer.json()["jobs"]]
    assert [(job.queue, job.max_attempts, job.lease_seconds) for job in both] == [(queue, 7, 33.0), (queue, 3, 60.0)]


def test_a_version_is_text_or_a_whole_number(served: Served, client: httpx.Client, queue: str) -> None:
    by_number, by_text = (create(client, queue=queue, version=version)["id"] for version in (7, "7"))
    assert [served.store.job(job_id).task_version for job_id in (by_number, by_text)] == ["7", "7"]
    assert served.store.job(by_number).spec_hash == served.store.job(by_text).spec_hash


def test_a_payload_that_is_too_large_is_413_with_its_limit(served: Served, client: httpx.Client, queue: str) -> None:
    large = {"task": "send", "queue": queue, "payload": {"text": "x" * 262_144}}
    alone = check_problem(client.post(JOBS, json=large), 413, "262,144")
    among = check_problem(client.post(f"{JOBS}/batch", json={"jobs": [{**large, "payload": {}}, large]}), 413)
    assert [problem["field"] for problem in (alone, among)] == ["payload", "jobs.1.payload"]
    assert {problem["limit_bytes"] for problem in (alone, among)} == {262_144}
    assert served.store.listed(queues=[queue]).items == ()
    described = client.get("/openapi.json").json()["paths"]
    for path in (JOBS, f"{JOBS}/batch", *(f"{WORKER}/{verb}" for verb in ("complete", "reports", "heartbeat"))):
        assert "413" in described[path]["post"]["responses"], path


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prioritty": 1}, "prioritty"),
        ({"payload": [1]}, "payload"),
        ({"payload": {"text": "a\x00b"}}, "NUL"),
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"run_after": "2030-01-01T00:00:00"}, "run_after"),
        ({"run_after": 5}, "run_after"),
        ({"run_after": "0001-01-01T00:00:00+14:00"}, "run_after"),
        ({"run_after": "2030-01-01T00:00:00Z", "delay_seconds": 1}, "run_after"),
        ({"delay_seconds": 10**400}, "delay"),
        ({"id": "nothing"}, "id"),
        ({"lease_seconds": 0.9}, "lease_seconds"),
        ({"version": 1.5}, "version"),
        ({"version": True}, "version"),
        ({"retry": {"knd": "fixed"}}, "knd"),
        ({"webhook": {"url": "ftp://example.com"}}, "webhook"),
        ({"queue": "a\nb"}, "queue"),
        ({"task": " "}, "task"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    served: Served, client: httpx.Client, queue: str, fields: dict[str, Any], said: str
) -> None:
    answer = client.post(JOBS, json={"task": "send", "queue": queue, **fields})
    problem = check_problem(answer, 422)
    assert said in problem["detail"]
    assert served.store.listed(queues=[queue]).items == ()


def test_a_batch_is_stored_whole_or_not_at_all(served: Served, client: httpx.Client, queue: str) -> None:
    jobs = [{"task": "send", "queue": queue, "payload": {"n": n}} for n in range(50)]
    answer = client.post(f"{JOBS}/batch", json={"jobs": jobs})
    assert answer.status_code == 201
    ids = [item["id"] for item in answer.json()["jobs"]]
    assert [served.store.job(job_id).payload["n"] for job_id in ids] == list(range(50))
    wrong = [*jobs, {"task": "send", "queue": queue, "payload": {"n": "\x00"}}]
    problem = check_problem(client.post(f"{JOBS}/batch", json={"jobs": wrong}), 422)
    assert problem["field"].startswith("jobs.50.payload")
    too_many = [{"task": "t"}] * 10_001
    check_problem(client.post(f"{JOBS}/batch", json={"jobs": too_many}), 422, "10000")
    assert len(served.store.listed(queues=[queue], limit=100).items) == 50


# Read


def test_pages_hold_all_jobs_once_and_filters_narrow_them(served: Served, viewer: httpx.Client, queue: str) -> None:
    ids = served.enqueue(queue, 7)
    finish(served, ids[0])
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = viewer.get(JOBS, params={"queue": queue, "limit": 3, **({"after": after} if after else {})}).json()
        seen += [job["id"] for job in page["jobs"]]
        after = page["after"]
    assert seen == ids[::-1]
    states = viewer.get(JOBS, params={"queue": queue, "state": ["succeeded", "failed"]}).json()["jobs"]
    assert [job["id"] for job in states] == [ids[0]]
    assert viewer.get(JOBS, params={"queue": queue, "task": "nobody"}).json() == {"jobs": [], "after": None}
    without = viewer.get(f"{JOBS}?state=&queue=&task=&limit=&after=")
    assert without.json() == viewer.get(JOBS).json(), "what has no value was not given"
    some = viewer.get(f"{JOBS}?state=&queue={queue}&task=&limit=2&after=").json()["jobs"]
    assert [job["id"] for job in some] == ids[:-3:-1]
    check_problem(viewer.get(f"{JOBS}?stat="), 422, "stat")
    check_problem(viewer.get(JOBS, params={"state": "lost"}), 422)
    check_problem(viewer.get(JOBS, params={"after": "nothing"}), 422, "after")


def test_a_large_payload_is_only_in_the_job_itself(client: httpx.Client, queue: str) -> None:
    job_id = create(client, queue=queue, payload={"text": "x" * 9000})["id"]
    [listed] = client.get(JOBS, params={"queue": queue}).json()["jobs"]
    assert (listed["payload"], listed["omitted"]) == (None, ["payload"])
    assert len(client.get(f"{JOBS}/{job_id}").json()["payload"]["text"]) == 9000


def test_an_unknown_job_is_not_found(client: httpx.Client) -> None:
    for path in ("", "/events", "/attempts", "/logs", "/artifacts"):
        check_problem(client.get(f"{JOBS}/{uuid.uuid4()}{path}"), 404, "there is no job")
        check_problem(client.get(f"{JOBS}/nothing{path}"), 422, "job_id")
    for verb in ("cancel", "requeue", "replay"):
        check_problem(client.post(f"{JOBS}/{uuid.uuid4()}/{verb}"), 404)


# Operate


def test_a_job_is_cancelled_and_requeued(served: Served, client: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    check_problem(client.post(f"{JOBS}/{job_id}/requeue"), 409, "pending", "only a failed or cancelled")
    cancelled = client.post(f"{JOBS}/{job_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["did"], cancelled.json()["state"]) == (
        200,
        "cancelled",
        "cancelled",
    )
    assert client.post(f"{JOBS}/{job_id}/cancel").status_code == 200
    assert client.post(f"{JOBS}/{job_id}/requeue").json()["did"] == "requeued"
    served.store.claim_job("ann", job_id)
    running = client.post(f"{JOBS}/{job_id}/cancel").json()
    assert (running["did"], running["state"]) == ("cancel_requested", "running")


def test_what_has_ended_cannot_be_cancelled_and_a_taken_key_not_requeued(
    served: Served, client: httpx.Client, queue: str
) -> None:
    job_id = create(client, queue=queue, unique_key=queue)["id"]
    finish(served, job_id, well=False)
    problem = check_problem(client.post(f"{JOBS}/{job_id}/cancel"), 409, "failed")
    assert problem["state"] == "failed"
    create(client, queue=queue, unique_key=queue)
    check_problem(client.post(f"{JOBS}/{job_id}/requeue"), 409, "unique key")
    check_problem(client.post(f"{JOBS}/{job_id}/replay"), 409, "unique")


def test_a_replay_is_a_new_job_and_safe_to_ask_for_again(served: Served, client: httpx.Client, queue: str) -> None:
    job_id = create(client, queue=queue, payload={"n": 1.0}, priority=3)["id"]
    finish(served, job_id)
    new_id = str(uuid.uuid4())
    first = client.post(f"{JOBS}/{job_id}/replay", params={"id": new_id})
    again = client.post(f"{JOBS}/{job_id}/replay", params={"id": new_id})
    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 200, new_id)
    replayed = client.get(f"{JOBS}/{new_id}").json()
    assert (replayed["replay_of"], replayed["priority"], replayed["state"]) == (job_id, 3, "pending")
    assert replayed["spec_hash"] == served.store.job(job_id).spec_hash


# Scopes and queues


def test_a_viewer_only_looks(served: Served, viewer: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    assert viewer.get(f"{JOBS}/{job_id}").status_code == 200
    before = served.store.job(job_id)
    for path in (JOBS, f"{JOBS}/batch"):
        check_problem(viewer.post(path, json={"task": "send", "queue": queue}), 403, "scope")
    for path in (f"{JOBS}/{job_id}/cancel", f"{JOBS}/{job_id}/replay", f"/api/v1/queues/{queue}/pause"):
        check_problem(viewer.post(path), 403)
    for path in (f"/api/v1/queues/{queue}/limit", f"/api/v1/sources/{queue}"):
        check_problem(viewer.put(path, json={}), 403)
    assert served.store.job(job_id) == before
    assert served.store.listed(queues=[queue]).items[1:] == ()


def test_a_worker_token_is_not_for_clients(worker: httpx.Client) -> None:
    check_problem(worker.get(JOBS), 403)
    check_problem(worker.post(JOBS, json={"task": "send"}), 403)


def test_a_token_of_some_queues_sees_only_them(served: Served, queue: str) -> None:
    hidden = f"{queue}-other"
    ours, theirs = served.enqueue(queue, 3), served.enqueue(hidden, 3)
    with served.client(token=served.new_token("client", queues=(queue,))) as limited:
        page = limited.get(JOBS, params={"limit": 2}).json()
        rest = limited.get(JOBS, params={"limit": 2, "after": page["after"]}).json()
        assert [job["id"] for job in (*page["jobs"], *rest["jobs"])] == ours[::-1]
        check_problem(limited.get(JOBS, params={"queue": hidden}), 403)
        check_problem(limited.post(JOBS, json={"task": "send", "queue": hidden}), 403)
        check_problem(limited.post(JOBS, json={"task": "send"}), 403, "default")
        batch = {"jobs": [{"task": "send", "queue": queue}, {"task": "send", "queue": hidden}]}
        check_problem(limited.post(f"{JOBS}/batch", json=batch), 403)
        for path in ("", "/events", "/attempts", "/logs", "/artifacts"):
            check_problem(limited.get(f"{JOBS}/{theirs[0]}{path}"), 404)
            assert limited.get(f"{JOBS}/{ours[0]}{path}").status_code == 200
        for verb in ("cancel", "requeue", "replay"):
            check_problem(limited.post(f"{JOBS}/{theirs[0]}/{verb}"), 404)
        check_problem(limited.post(f"/api/v1/queues/{hidden}/pause"), 403)
        check_problem(limited.put(f"/api/v1/sources/{quote(hidden)}", json={"enabled": False}), 403)
        assert [item["name"] for item in limited.get("/api/v1/queues").json()["queues"]] == [queue]
        counted = limited.get("/api/v1/stats").json()["states"]
        assert {item["state"]: item["count"] for item in counted if item["count"]} == {"pending": 3}
    assert [served.store.job(job_id).state for job_id in theirs] == ["pending"] * 3
    assert len(served.store.listed(queues=[queue, hidden]).items) == 6


def test_a_token_of_some_queues_learns_nothing_of_a_job_that_stands_in(served: Served, queue: str) -> None:
    hidden, key = f"{queue}-other", f"key-{queue}"
    ours, theirs = ({"task": "send", "payload": {"for": queue}, "queue": name} for name in (queue, hidden))
    with served.client("client") as everywhere:
        done = create(everywhere, **{**theirs, "payload": {"done": queue}})["id"]
        finish(served, done)
        secret = create(everywhere, **theirs, unique_key=key)["id"]
        secret_spec = create(everywhere, **theirs, unique=True)["id"]
    known = [done, secret, secret_spec]
    before = [served.store.job(job_id) for job_id in known]
    with served.client(token=served.new_token("client", queues=(queue,))) as limited:
        mine = create(limited, **ours)["id"]
        asked: list[dict[str, Any]] = [
            {**ours, "unique_key": key},
            {**ours, "unique": True},
            {**ours, "id": secret},
            {**ours, "id": secret, "payload": {"another": 1}},
            {**ours, "id": secret, "task": "another"},
            {**ours, "payload": {"done": queue}, "reuse_seconds": 3600},
        ]
        refused = [limited.post(JOBS, json=body) for body in asked]
        refused += [limited.post(f"{JOBS}/batch", json={"jobs": [{**ours, "payload": {}}, body]}) for body in asked]
        refused += [limited.post(f"{JOBS}/{mine}/replay", params={"id": job_id}) for job_id in known]
        problems = [check_problem(answer, 409) for answer in refused]
        assert all(problem == problems[0] for problem in problems), "which of them it is cannot be told"
        assert problems[0].keys() == {"type", "title", "status", "detail"}
        assert limited.post(JOBS, json={**ours, "id": mine}).json() == {
            "id": mine,
            "created": False,
            "state": "pending",
        }
    assert [served.store.job(job_id) for job_id in known] == before
    assert [listed.job.id for listed in served.store.listed(queues=[queue]).items] == [mine], (
        "nor was a batch half made"
    )
