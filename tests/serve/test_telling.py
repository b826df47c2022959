"""What a worker tells besides its jobs: no credential speaks for another's queues, attempts or workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.domain.views import WorkerRow
from tests.serve import http
from tests.serve.grounds import WORKER, Served
from tests.serve.speaking import Json, claim, lease, say

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def limited(served: Served, queue: str) -> Iterator[httpx.Client]:
    with served.client(token=served.new_token("worker", queues=(queue,))) as client:
        yield client


# log lines


def line_of(job: Json, **more: Any) -> Json:
    at = "2026-01-01T00:00:00Z"
    line = {"job_id": job["job_id"], "attempt": job["attempt"], "number": 1, "at": at, "stream": "log", "message": "m"}
    return {**line, **more}


def shown(job: Json) -> Json:
    return {name: job[name] for name in ("attempt_id", "lease_token")}


def test_a_line_is_taken_from_whoever_held_its_attempt(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 2)
    job, other = claim(worker, queue), claim(worker, queue)
    both = [line_of(job), line_of(other)]
    say(worker, "logs", lines=both, leases=[shown(job), shown(other)])
    say(worker, "complete", **lease(job), result=None)
    say(worker, "logs", lines=[line_of(job, number=2)], leases=[shown(job)])
    assert [len(served.store.logs(one["job_id"])) for one in (job, other)] == [2, 1]
    gone: Json = {"job_id": "0199a2b0-0000-7000-8000-000000000001", "attempt": 1}
    absent = {"attempt_id": f"{gone['job_id']}.1", "lease_token": "0" * 64}
    say(worker, "logs", lines=[line_of(gone), line_of(other, number=2)], leases=[absent, shown(other)])
    assert len(served.store.logs(other["job_id"])) == 2, "what became of another job costs it nothing"
    assert served.store.logs(gone["job_id"]) == []


def test_nobody_else_can_write_into_the_log_of_a_job(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 2)
    job, other = claim(worker, queue), claim(worker, queue)
    forged = {**shown(job), "lease_token": "0" * 64}
    next_one = {**shown(job), "attempt_id": f"{job['job_id']}.2"}
    for leases in ([], [shown(other)], [forged], [next_one], [{**shown(job), "attempt_id": other["attempt_id"]}]):
        problem = say(worker, "logs", 403, lines=[line_of(other, number=9), line_of(job)], leases=[*leases])
        assert "lease" in problem["detail"]
        assert job["lease_token"] not in str(problem)
    later = line_of(job, attempt=2)
    say(worker, "logs", 403, lines=[line_of(job), later], leases=[shown(job), next_one])
    with served.client(token=served.new_token("worker")) as thief:
        say(thief, "logs", 403, lines=[line_of(job)], leases=[shown(job)])
    assert [served.store.logs(one["job_id"]) for one in (job, other)] == [[], []]


def test_times_that_no_store_can_hold_are_refused_and_all_others_come_back(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    ends = ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z")
    for at in (*ends, "2026-01-01T00:00:00", 1_767_225_600, "1767225600", "2026-01-01", None):
        problem = say(worker, "logs", 422, lines=[line_of(job, at=at)], leases=[shown(job)])
        assert problem["field"] == "lines.0.at", (at, problem)
    for number, at in enumerate(("2026-01-01T12:00:00+23:59", "9998-12-30T23:59:59-12:00", "1970-01-01T00:00:00Z")):
        say(worker, "logs", lines=[line_of(job, number=number, at=at)], leases=[shown(job)])
    found = [line.at.isoformat() for line in served.store.logs(job["job_id"])]
    assert found[0].startswith("2025-12-31T12:01:00"), found
    assert len(found) == 3


# tasks and schedules


@on_sqlite
def test_defaults_that_no_job_can_have_are_refused(served: Served, worker: httpx.Client, queue: str) -> None:
    name = f"task-{queue}"
    bad: dict[str, Any] = {
        "queue": 5,
        "max_attempts": -1,
        "priority": "high",
        "lease_seconds": 0,
        "retry": {"kind": []},
        "webhook": "ftp://x",
    }
    for option, value in bad.items():
        tasks = [{"name": f"{name}-good"}, {"name": name, "defaults": {option: value}}]
        problem = say(worker, "announce", 422, tasks=tasks)
        assert problem["field"].startswith(f"tasks.1.defaults.{option}"), problem
    assert served.store.announced(f"{name}-good") is None, "nothing is stored"
    say(worker, "announce", tasks=[{"name": name, "defaults": {"queue": queue, "of_a_newer_worker": [1]}}])
    known = served.store.announced(name)
    assert known is not None
    assert known.defaults["queue"] == queue


@on_sqlite
def test_a_limited_token_announces_tasks_of_its_queues_alone(
    served: Served, worker: httpx.Client, limited: httpx.Client, queue: str
) -> None:
    say(worker, "announce", tasks=[{"name": f"billing-{queue}", "defaults": {"queue": "billing"}}])
    say(worker, "announce", tasks=[{"name": f"plain-{queue}"}])
    own = {"queue": queue}
    refused = [
        {"name": f"billing-{queue}", "defaults": own},
        {"name": f"plain-{queue}", "defaults": own},
        {"name": f"new-{queue}", "defaults": {"queue": "billing"}},
        {"name": f"new-{queue}"},
        {"name": f"new-{queue}", "defaults": {**own, "webhook": "https://example.com/"}},
    ]
    for task in refused:
        say(limited, "announce", 403, tasks=[{"name": f"mine-{queue}", "defaults": own}, task])
    known = {task.name: task.defaults for task in served.store.announced_tasks()}
    assert known[f"billing-{queue}"] == {"queue": "billing"}
    assert not {f"mine-{queue}", f"new-{queue}"} & set(known)
    for _again in range(2):
        say(limited, "announce", tasks=[{"name": f"mine-{queue}", "defaults": own}])


@on_sqlite
def test_a_limited_token_declares_schedules_of_its_queues_alone(
    served: Served, worker: httpx.Client, limited: httpx.Client, queue: str
) -> None:
    task, mine = f"billing-{queue}", f"mine-{queue}"
    say(worker, "announce", tasks=[{"name": task, "defaults": {"queue": "billing"}}])
    hourly: Json = {"task": task, "every_seconds": 3600.0}
    theirs = {**hourly, "name": f"theirs-{queue}"}
    say(worker, "announce", schedules=[theirs])
    for wrong in (
        {**theirs, "job": {"queue": queue}},
        {**hourly, "name": mine},
        {**hourly, "name": mine, "task": f"nobody-{queue}"},
        {**hourly, "name": mine, "job": {"queue": "billing"}},
    ):
        for how in ("schedules", "kept"):
            say(limited, "announce", 403, **{how: [wrong]})
    assert mine not in {schedule.name for schedule in served.store.schedules()}
    assert "queue" not in served.store.schedule(theirs["name"]).job
    own = {"name": f"own-{queue}", "defaults": {"queue": queue}}
    say(limited, "announce", tasks=[own], schedules=[{"name": mine, "task": own["name"], "every_seconds": 60.0}])
    say(worker, "announce", tasks=[{**own, "defaults": {"queue": "billing"}}])
    assert served.store.schedule(mine).job["queue"] == queue, "what is announced later does not take it elsewhere"


@on_sqlite
def test_a_rule_of_another_type_is_refused(worker: httpx.Client) -> None:
    wrong: list[Any] = [[], {}, 5, True]
    for cron in wrong:
        problem = say(worker, "announce", 422, schedules=[{"name": "z", "task": "t", "cron": cron}])
        assert problem["field"] == "cron"


# rows of workers


def test_a_workers_row_belongs_to_the_credential_that_wrote_it_first(
    served: Served, worker: httpx.Client, limited: httpx.Client, queue: str
) -> None:
    row = {"id": f"w-{queue}", "host": "h", "pid": 7, "state": "idle", "detail": {"a": 1}}

    def tell(client: httpx.Client, **more: Any) -> int:
        return client.post(f"{WORKER}/worker", json={**row, **more}).status_code

    def stored() -> Any:
        [view] = [view for view in served.store.workers() if view.id == row["id"]]
        return view

    assert [tell(limited), tell(limited, state="busy")] == [200, 200]
    assert tell(worker, state="stopped") == 403
    assert (stored().state, stored().detail, stored().queues) == ("busy", {"a": 1}, (queue,))
    assert tell(limited, queues=[queue, "billing"]) == 403
    assert tell(limited, detail={"a": "x" * 16_384}) == 422
    assert stored().state == "busy"
    served.store.keep_worker(WorkerRow(id=str(row["id"]), host="h", pid=7, state="polling"))
    assert tell(limited, state="gone") == 403, "a worker that has the database itself is nobody's over HTTP"


@on_sqlite
def test_a_slash_too_many_is_no_redirect(served: Served) -> None:
    answer = http.get(f"{served.url}/api/v1/jobs/", headers={"Host": "evil.example"}, follow_redirects=False)
    assert answer.status_code in (401, 404)
    assert "location" not in answer.headers
