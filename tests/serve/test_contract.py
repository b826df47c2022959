"""The worker contract, version 1, verb by verb, as a worker in another language meets it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from holdfast.domain.lifecycle import State
from holdfast.maintenance.verify import verify
from holdfast.stores.histories import Histories
from tests.serve import http
from tests.serve.grounds import WORKER, Served, bearer
from tests.serve.speaking import beat, claim, lease, say
from tests.servers.waiting import wait_until

FIXED = {
    "job_id",
    "attempt_id",
    "lease_token",
    "stream",
    "message_id",
    "task",
    "payload",
    "attempt",
    "timeout_seconds",
    "traceparent",
    "lease_ttl_seconds",
    "heartbeat_interval_seconds",
}


@pytest.fixture(scope="module", autouse=True)
def _verified(served: Served) -> Any:
    """Whatever was asked of it, the ledger keeps every promise."""
    yield
    verdict = verify(Histories(served.store.database.engine))
    assert verdict.ok, verdict.violations


def test_a_job_is_claimed_worked_on_and_completed(served: Served, worker: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue, timeout_seconds=30.0)
    job = say(worker, "claim", streams=[queue], max_wait_ms=0)
    assert job.keys() >= FIXED
    assert (job["claimed"], job["job_id"], job["attempt_id"]) == (True, job_id, f"{job_id}.1")
    assert (job["stream"], job["message_id"], job["payload"]) == (queue, None, {"number": 0})
    assert (job["attempt"], job["timeout_seconds"], job["lease_ttl_seconds"]) == (1, 30.0, 60.0)
    assert "jobs" not in job

    beaten = say(worker, "heartbeat", **beat(job), progress={"done": 3})
    assert (beaten["ok"], beaten["cancel"], beaten["lease_ttl_seconds"]) == (True, False, 60.0)
    assert datetime.fromisoformat(beaten["lease_expires_at"]) > datetime.now(UTC)
    assert beaten["lease_expires_at"].endswith("Z"), "as in the client API"
    assert served.store.job(job_id).progress == {"done": 3}

    answer = say(worker, "complete", **lease(job), result={"pages": [1, 2.5, "ü"]})
    assert (answer["ok"], answer["ack"]) == (True, True)
    stored = served.store.job(job_id)
    assert (stored.state, stored.result) == (State.SUCCEEDED, {"pages": [1, 2.5, "ü"]})
    assert [event.worker for event in served.store.events(job_id)][1:] == ["tester", "tester"]


def test_nothing_to_claim_is_an_answer_with_every_field_null(worker: httpx.Client, queue: str) -> None:
    answer = say(worker, "claim", streams=[queue])
    assert answer["claimed"] is False
    assert {answer[name] for name in FIXED} == {None}
    assert say(worker, "claim", streams=[queue], limit=3)["jobs"] == []


def test_a_limit_brings_several_in_the_order_of_the_streams(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(f"{queue}-later", 2)
    served.enqueue(queue, 2)
    answer = say(worker, "claim", streams=[queue, f"{queue}-later"], limit=3)
    assert [job["stream"] for job in answer["jobs"]] == [queue, queue, f"{queue}-later"]
    assert {name: answer[name] for name in FIXED} == {name: answer["jobs"][0][name] for name in FIXED}


def test_a_worker_may_name_its_tasks(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue)
    assert not say(worker, "claim", streams=[queue], tasks=["other"])["claimed"]
    assert say(worker, "claim", streams=[queue], tasks=["other", "send"])["claimed"]


def test_a_limited_token_sees_its_own_queues_only(served: Served, queue: str) -> None:
    served.enqueue(f"{queue}-other")
    [mine] = served.enqueue(queue)
    with served.client(token=served.new_token("worker", queues=(queue,))) as limited:
        refused = say(limited, "claim", 403, streams=[f"{queue}-other"])
        assert refused["status"] == 403
        assert say(limited, "claim", streams=None)["job_id"] == mine
        assert not say(limited, "claim", streams=None)["claimed"]


def test_a_cancel_is_told_with_the_heartbeat(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    served.store.cancel([job["job_id"]])
    assert say(worker, "heartbeat", **beat(job))["cancel"] is True
    failed = say(worker, "fail", **lease(job), error={"code": "stopped", "message": "was asked to"})
    assert (failed["ok"], failed["requeued"], failed["dlq"]) == (True, False, False)
    assert served.store.job(job["job_id"]).state is State.CANCELLED


def test_a_failure_is_tried_again_until_its_budget_is_gone(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, max_attempts=1)
    served.enqueue(queue)
    dead, later = claim(worker, queue), claim(worker, queue)
    error = {"code": "boom", "message": "it broke", "stack": "line 1", "retryable": True}
    gone = say(worker, "fail", **lease(dead), error=error)
    assert (gone["ok"], gone["ack"], gone["requeued"], gone["dlq"]) == (True, True, False, True)
    again = say(worker, "fail", **lease(later), error=error)
    assert (again["ok"], again["ack"], again["requeued"], again["dlq"]) == (True, True, True, False)
    assert served.store.job(dead["job_id"]).last_error == error


def test_a_release_is_free_and_with_a_delay_for_later(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 2)
    now, later = claim(worker, queue), claim(worker, queue)
    assert say(worker, "release", **lease(now))["ok"]
    assert say(worker, "release", **lease(later), delay_seconds=90)["ok"]
    released, snoozed = served.store.job(now["job_id"]), served.store.job(later["job_id"])
    assert (released.state, released.failures, released.transition) == (State.PENDING, 0, "released")
    assert (snoozed.state, snoozed.failures, snoozed.transition) == (State.PENDING, 0, "snoozed")
    assert snoozed.run_after > released.run_after


def test_a_request_id_gets_the_same_jobs_again(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 3)
    first = say(worker, "claim", streams=[queue], limit=2, request_id=f"r-{queue}")
    again = say(worker, "claim", streams=[queue], limit=2, request_id=f"r-{queue}")
    assert len(first["jobs"]) == 2
    assert again["jobs"] == first["jobs"]
    say(worker, "complete", **lease(first["jobs"][0]), result=None)
    assert say(worker, "claim", streams=[queue], limit=2, request_id=f"r-{queue}")["jobs"] == first["jobs"][1:]
    with served.client(token=served.new_token("worker")) as other:
        assert len(say(other, "claim", streams=[queue], limit=2, request_id=f"r-{queue}")["jobs"]) == 1


def test_batches_answer_each_of_theirs(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 3)
    jobs = say(worker, "claim", streams=[queue], limit=3)["jobs"]
    forged = {**lease(jobs[0]), "lease_token": "0" * 64}
    beats = say(worker, "heartbeats", beats=[lease(jobs[0]), forged, lease(jobs[1])])["answers"]
    assert [answer["status"] for answer in beats] == ["applied", "refused", "applied"]
    reports = [
        {**lease(jobs[0]), "outcome": {"kind": "succeeded", "result": 1}, "usage": {"duration_ms": 5}},
        {**forged, "outcome": {"kind": "succeeded", "result": 2}},
        {**lease(jobs[1]), "outcome": {"kind": "crashed", "message": "gone", "signal": 9}},
        {**lease(jobs[2]), "outcome": {"kind": "snoozed", "delay_seconds": 60}},
    ]
    answers = say(worker, "reports", reports=reports)["answers"]
    assert [answer["ok"] for answer in answers] == [True, False, True, True]
    assert [answer["event"] for answer in answers] == ["succeeded", None, "crashed", "snoozed"]
    assert [answer["ack"] for answer in answers] == [True, False, True, True]
    assert served.store.attempts(jobs[0]["job_id"])[0].duration_ms == 5


def test_a_report_may_tell_of_the_caches_of_sources(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 1)
    [job] = say(worker, "claim", streams=[queue], limit=1)["jobs"]
    report = {**lease(job), "outcome": {"kind": "succeeded"}}
    too_many = {f"s{number}": [1, 1] for number in range(51)}
    wrong: tuple[Any, ...] = ([], {"shop": 7}, {"shop": [1]}, {"shop": [1, -1]}, {"": [1, 1]}, too_many)
    for nonsense in wrong:
        body = {"worker_id": "w", "reports": [{**report, "cache": nonsense}]}
        assert worker.post(f"{WORKER}/reports", json=body).status_code == 422
    assert served.store.job(job["job_id"]).state is State.RUNNING
    [answer] = say(worker, "reports", reports=[{**report, "cache": {"shop": [3, 1], "new\nline": [1, 1]}}])["answers"]
    assert answer["ok"]
    assert (served.store.events(job["job_id"])[-1].detail or {})["cache"] == {"shop": [3, 1]}


def test_announcements_and_the_workers_row(served: Served, worker: httpx.Client, queue: str) -> None:
    task: dict[str, Any] = {
        "name": f"task-{queue}",
        "version": None,
        "kind": "sync",
        "on_lost_lease": "kill",
        "defaults": {},
    }
    schedule = {"name": f"every-{queue}", "task": task["name"], "every_seconds": 3600.0}
    assert say(worker, "announce", tasks=[task], schedules=[schedule])["failures"] == []
    say(worker, "announce", kept=[schedule])
    known = served.store.announced(task["name"])
    assert known is not None
    assert served.store.schedule(f"every-{queue}").every_seconds == 3600.0
    row = {"id": f"w-{queue}", "host": "h", "pid": 7, "state": "idle", "queues": [queue]}
    assert worker.post(f"{WORKER}/worker", json=row).json() == {"ok": True}
    assert (f"w-{queue}", (queue,)) in {(view.id, view.queues) for view in served.store.workers()}
    about = worker.get(f"{WORKER}/store").json()
    assert (about["store_id"], about["contract"]) == (served.store.store_id(), 1)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("claim", {}),
    ("claim", {"stream": ["mail"]}),
    ("claim", {"streams": []}),
    ("claim", {"streams": ["a\nb"]}),
    ("claim", {"streams": None, "max_wait_ms": 60_001}),
    ("claim", {"streams": None, "max_wait_ms": "10"}),
    ("claim", {"streams": None, "limit": 0}),
    ("claim", {"streams": None, "limit": 501}),
    ("claim", {"streams": None, "worker_id": ""}),
    ("claim", {"streams": None, "worker_id": None}),
    ("heartbeat", {"job_id": "no uuid", "lease_token": "x"}),
    ("heartbeat", {"lease_token": "x"}),
    ("complete", {}),
    ("complete", {"results": 1}),
    ("complete", {"result": 1, "attempt_id": "nonsense"}),
    ("complete", {"result": 1, "attempt_id": "{job}.one"}),
    ("complete", {"result": 1, "attempt_id": "{job}.01"}),
    ("fail", {}),
    ("fail", {"error": {"code": "x", "message": 1}}),
    ("release", {"delay_seconds": -1}),
    ("heartbeats", {"beats": [{"job_id": "{job}"}]}),
    ("reports", {"reports": [{"outcome": {"kind": "exploded"}}]}),
    ("logs", {"lines": [{"message": "no more"}]}),
    ("announce", {"schedules": [{"name": "x"}]}),
]


def test_what_breaks_a_rule_is_refused_and_changes_nothing(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    before = served.store.job(job["job_id"])
    for verb, body in BROKEN:
        known = lease(job) if verb in ("complete", "fail", "release") else {}
        wrong = {name: _filled(value, job["job_id"]) for name, value in body.items()}
        problem = say(worker, verb, 422, **{**known, **wrong})
        assert problem["status"] == 422, (verb, body)
        assert problem["detail"]
        assert job["lease_token"] not in str(problem)
    assert served.store.job(job["job_id"]) == before


def test_what_is_too_large_is_413_with_its_limit(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    before = served.store.job(job["job_id"])
    result, progress = "x" * 262_143, "x" * 4_095  # with its quotes one byte over
    report = {**lease(job), "outcome": {"kind": "succeeded", "result": result}}
    for verb, body, field, limit in (
        ("complete", {**lease(job), "result": result}, "result", 262_144),
        ("reports", {"reports": [report]}, "result", 262_144),
        ("heartbeat", {**beat(job), "progress": progress}, "progress", 4_096),
        ("heartbeats", {"beats": [{**lease(job), "progress": progress}]}, "progress", 4_096),
    ):
        problem = say(worker, verb, 413, **body)
        assert (problem["field"], problem["limit_bytes"]) == (field, limit), verb
    assert served.store.job(job["job_id"]) == before
    assert say(worker, "complete", **lease(job), result=result[1:])["ok"]


def _filled(value: Any, job_id: str) -> Any:
    return value.replace("{job}", job_id) if isinstance(value, str) else value


def test_who_speaks_without_the_right_token_is_not_heard(served: Served, queue: str) -> None:
    served.enqueue(queue)
    body = {"worker_id": "w", "streams": [queue]}
    assert http.post(f"{served.url}{WORKER}/claim", json=body).status_code == 401
    wrong_scope = http.post(f"{served.url}{WORKER}/claim", json=body, headers=bearer(served.tokens["viewer"]))
    assert wrong_scope.status_code == 403
    assert wrong_scope.headers["content-type"] == "application/problem+json"


def test_the_page_about_the_api_loads_nothing_from_elsewhere(served: Served) -> None:
    page = http.get(f"{served.url}/docs")
    assert page.status_code == 200
    assert "/internal/worker/claim" in page.text
    assert not any(word in page.text for word in ("<script", "http://", "https://", "src="))
    described = http.get(f"{served.url}/openapi.json").json()
    assert {f"{WORKER}/{verb}" for verb in ("claim", "heartbeat", "complete", "fail", "release")} <= set(
        described["paths"]
    )


def test_health_needs_no_token(served: Served) -> None:
    assert http.get(f"{served.url}/healthz").json() == {"status": "ok"}
    # A server that is held up for five seconds responds that its store is away.
    ready = {"status": "ready"}
    wait_until(lambda: http.get(f"{served.url}/readyz").json() == ready, what="the control plane is ready")
