"""Sources and the cache for a worker that has only HTTP: under the lease of a job that runs, and under no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.domain.errors import NotFound
from holdfast.domain.lifecycle import State
from tests.serve.grounds import Served
from tests.serve.speaking import Json, claim, lease, say

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def limited(served: Served, queue: str) -> Iterator[httpx.Client]:
    with served.client(token=served.new_token("worker", queues=(queue,))) as client:
        yield client


@pytest.fixture
def jobs(served: Served, worker: httpx.Client, queue: str) -> list[Json]:
    """Two that run."""
    served.enqueue(queue, 2)
    return [claim(worker, queue) for _ in range(2)]


def shown(job: Json) -> Json:
    return {name: job[name] for name in ("attempt_id", "lease_token")}


def enter(client: httpx.Client, job: Json, source: str, number: int = 1, **more: Any) -> Json:
    return say(client, "source/enter", **shown(job), source=source, number=number, **more)


def leave(client: httpx.Client, job: Json, source: str, number: int = 1, **more: Any) -> Json:
    return say(client, "source/leave", **shown(job), source=source, number=number, **more)


def get(client: httpx.Client, job: Json, source: str, key: str = "k") -> Json:
    return say(client, "cache/get", **shown(job), source=source, key=key)


def put(client: httpx.Client, job: Json, source: str, value: Any, key: str = "k") -> Json:
    return say(client, "cache/put", **shown(job), source=source, key=key, value=value, ttl_seconds=60)


ADMITTED = {"ok": True, "reason": None, "admitted": True, "retry_in": 0.0, "why": ""}


# sources


def test_a_place_is_held_from_enter_to_leave_and_both_may_be_sent_again(
    served: Served, worker: httpx.Client, jobs: list[Json], queue: str
) -> None:
    served.store.set_source(queue, max_concurrent=1)
    first, second = jobs
    for _again in range(2):
        assert enter(worker, first, queue) == ADMITTED
    turned_away = enter(worker, second, queue)
    assert (turned_away["ok"], turned_away["admitted"], turned_away["why"]) == (True, False, "concurrency")
    assert turned_away["retry_in"] > 0
    for _again in range(2):
        assert leave(worker, first, queue, end="succeeded") == {"ok": True, "reason": None}
    assert enter(worker, second, queue) == ADMITTED
    assert not enter(worker, first, queue, number=2)["admitted"]


def test_a_source_without_limits_lets_everybody_in(worker: httpx.Client, jobs: list[Json], queue: str) -> None:
    assert [enter(worker, job, f"free-{queue}") for job in jobs] == [ADMITTED, ADMITTED]
    assert leave(worker, jobs[0], f"free-{queue}", end="failed", code="Broken")["ok"]


def test_failures_open_the_breaker_and_a_source_that_asks_for_a_pause_gets_it(
    served: Served, worker: httpx.Client, jobs: list[Json], queue: str
) -> None:
    served.store.set_source(queue, breaker_threshold=2)
    for number in (1, 2):
        assert enter(worker, jobs[0], queue, number)["admitted"]
        for _again in range(2):
            leave(worker, jobs[0], queue, number, end="failed", code="HTTP\x00500")
    assert served.store.source(queue).failure_streak == 2, "sent twice, counted once"
    refused = enter(worker, jobs[1], queue)
    assert (refused["admitted"], refused["why"]) == (False, "breaker")
    assert refused["retry_in"] > 200

    throttled = f"throttled-{queue}"
    served.store.set_source(throttled)
    assert enter(worker, jobs[0], throttled, 3)["admitted"]
    leave(worker, jobs[0], throttled, 3, end="throttled", retry_after=120)
    view = served.store.source(throttled)
    assert (view.failure_streak, view.paused_until is None) == (0, False)
    assert enter(worker, jobs[1], throttled)["why"] == "paused"


@on_sqlite  # on Postgres a claim learns of the first source within seconds
def test_a_release_that_was_throttled_pauses_the_source_of_the_job(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    served.store.set_source(queue)
    served.enqueue(queue, source=queue)
    job = claim(worker, queue)
    problem = say(worker, "release", 422, **lease(job), throttled=True)
    assert problem["field"] == "delay_seconds"
    answers = [say(worker, "release", **lease(job), delay_seconds=90, throttled=True) for _again in range(2)]
    assert answers[0]["ok"]
    assert answers[1] == answers[0]
    stored, source = served.store.job(job["job_id"]), served.store.source(queue)
    assert (stored.state, stored.failures, source.failure_streak) == (State.PENDING, 0, 0)
    assert source.paused_until is not None
    events = [event.event for event in served.store.source_events(queue).items]
    assert events.count("throttled") == 1, events


@on_sqlite
def test_a_failure_that_another_source_was_told_of_does_not_count_for_the_jobs_own(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    served.store.set_source(queue)
    served.enqueue(queue, source=queue)
    job = claim(worker, queue)
    error = {"code": "ConnectionError", "message": "the mail server is away"}
    answers = [say(worker, "fail", **lease(job), error=error, told=True) for _again in range(2)]
    assert answers[0]["requeued"]
    assert answers[1] == answers[0]
    assert served.store.source(queue).failure_streak == 0


# the cache


def test_what_one_job_kept_another_finds(worker: httpx.Client, jobs: list[Json], queue: str) -> None:
    missed = {"ok": True, "reason": None, "found": False, "value": None}
    assert get(worker, jobs[0], queue) == missed
    for value in ({"pages": [1, 2.5, "ü"]}, None):
        for _again in range(2):
            assert put(worker, jobs[0], queue, value) == {"ok": True, "reason": None}
        assert get(worker, jobs[1], queue) == {"ok": True, "reason": None, "found": True, "value": value}
    assert get(worker, jobs[1], f"other-{queue}") == missed
    assert get(worker, jobs[1], queue, "other") == missed


# leases


def test_whoever_lost_the_lease_is_told_and_refused(
    served: Served, worker: httpx.Client, jobs: list[Json], queue: str
) -> None:
    served.store.set_source(queue, max_concurrent=1)
    old, other = jobs
    assert put(worker, other, queue, "kept")["ok"]
    say(worker, "release", **lease(old))
    new = claim(worker, queue)
    assert new["job_id"] == old["job_id"]
    assert enter(worker, old, queue) == {**ADMITTED, "ok": False, "reason": "lease_lost", "admitted": False}
    assert leave(worker, old, queue, end="failed") == {"ok": False, "reason": "lease_lost"}
    assert get(worker, old, queue) == {"ok": False, "reason": "lease_lost", "found": False, "value": None}
    assert put(worker, old, queue, "stale") == {"ok": False, "reason": "lease_lost"}
    assert get(worker, new, queue)["value"] == "kept"
    assert enter(worker, new, queue) == ADMITTED
    [refused] = served.store.refusals(old["job_id"])
    assert (refused.verb, refused.reason, refused.attempt, refused.count) == ("source", "lease_lost", 1, 4)


@pytest.mark.parametrize("whose", ["another credential's", "another job's", "nobody's", "the next attempt's"])
def test_a_lease_that_is_not_its_own_is_refused_and_on_record(
    served: Served, worker: httpx.Client, jobs: list[Json], queue: str, whose: str
) -> None:
    served.store.set_source(queue, max_concurrent=1)
    job, other = jobs
    match whose:
        case "another job's":
            wrong = {**job, "lease_token": other["lease_token"]}
        case "nobody's":
            wrong = {**job, "attempt_id": "0199a2b0-0000-7000-8000-000000000001.1"}
        case "the next attempt's":
            wrong = {**job, "attempt_id": f"{job['job_id']}.2"}
        case _:
            wrong = job
    thief = served.client(token=served.new_token("worker")) if whose == "another credential's" else worker
    reason = "unknown_job" if whose == "nobody's" else "unknown_lease"
    answers = [
        enter(thief, wrong, queue),
        leave(thief, wrong, queue, end="failed"),
        get(thief, wrong, queue),
        put(thief, wrong, queue, "poison"),
    ]
    assert [(answer["ok"], answer["reason"]) for answer in answers] == [(False, reason)] * 4
    assert get(worker, other, queue)["found"] is False
    assert enter(worker, other, queue) == ADMITTED, "nobody is inside"
    refused = served.store.refusals(wrong["attempt_id"].partition(".")[0])
    assert sum(refusal.count for refusal in refused if refusal.verb == "source") >= 4
    if thief is not worker:
        thief.close()


@on_sqlite
@pytest.mark.parametrize(
    ("verb", "field", "value"),
    [
        ("source/enter", "source", ""),
        ("source/enter", "source", "a\nb"),
        ("source/enter", "number", -1),
        ("source/enter", "number", 2**31),
        ("source/enter", "number", "1"),
        ("source/enter", "attempt_id", "x"),
        ("source/leave", "end", "exploded"),
        ("source/leave", "retry_after", -1),
        ("source/leave", "retry_after", 1e300),
        ("cache/get", "key", ""),
        ("cache/put", "ttl_seconds", 0),
        ("cache/put", "value", "a\x00b"),
        ("cache/put", "lease_token", None),
    ],
)
def test_what_breaks_a_rule_is_named_and_changes_nothing(
    worker: httpx.Client, jobs: list[Json], queue: str, verb: str, field: str, value: Any
) -> None:
    good = {**shown(jobs[0]), "source": queue, "number": 1, "key": "k", "value": 1, "ttl_seconds": 60}
    problem = say(worker, verb, 422, **{**good, field: value})
    assert problem["field"].startswith(field), problem
    assert jobs[0]["lease_token"] not in str(problem)
    assert get(worker, jobs[0], queue)["found"] is False


@on_sqlite
def test_what_is_too_large_is_refused(worker: httpx.Client, jobs: list[Json], queue: str) -> None:
    body = {**shown(jobs[0]), "source": queue, "key": "k", "value": "x" * 2**20, "ttl_seconds": 60}
    assert say(worker, "cache/put", 413, **body)["limit_bytes"] > 0
    assert get(worker, jobs[0], queue)["found"] is False


# declarations


@on_sqlite
def test_a_worker_declares_limits_and_nothing_of_it_counts_if_one_cannot_be(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    good = {"name": queue, "limits": {"rate_limit_per_minute": 30, "max_concurrent": 2}}
    for wrong in ({"max_concurrent": -1}, {"of_nobody": 1}, {"burst": "many"}):
        sources = [good, {"name": f"wrong-{queue}", "limits": wrong}]
        problem = say(worker, "announce", 422, tasks=[{"name": f"task-{queue}"}], sources=sources)
        assert next(iter(wrong)) in problem["field"], problem
    with pytest.raises(NotFound):
        served.store.source(queue)
    assert served.store.announced(f"task-{queue}") is None
    for _again in range(2):
        assert say(worker, "announce", sources=[good]) == {"failures": []}
    view = served.store.source(queue)
    assert (view.rate_limit_per_minute, view.max_concurrent) == (30.0, 2)


@on_sqlite
def test_a_limited_token_uses_sources_and_sets_no_limits(served: Served, limited: httpx.Client, queue: str) -> None:
    tasks = [{"name": f"task-{queue}", "defaults": {"queue": queue}}]
    problem = say(limited, "announce", 403, tasks=tasks, sources=[{"name": queue, "limits": {"burst": 9}}])
    assert "all queues" in problem["detail"]
    assert served.store.announced(f"task-{queue}") is None, "nothing is stored"
    with pytest.raises(NotFound):
        served.store.source(queue)
    served.store.set_source(queue, max_concurrent=1)
    served.enqueue(queue)
    job = claim(limited, queue)
    assert enter(limited, job, queue) == ADMITTED
    assert put(limited, job, queue, 1)["ok"]
    assert get(limited, job, queue)["value"] == 1
