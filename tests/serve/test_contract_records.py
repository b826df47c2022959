"""Records of a worker that has only HTTP: under the lease of a job that runs, and under no other."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serve.grounds import Served
from tests.serve.speaking import Json, claim, lease, say

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def job(served: Served, worker: httpx.Client, queue: str) -> Json:
    served.enqueue(queue)
    return claim(worker, queue)


def shown(job: Json) -> Json:
    return {name: job[name] for name in ("attempt_id", "lease_token")}


def write(client: httpx.Client, job: Json, *records: Json, status: int = 200) -> Json:
    return say(client, "records", status, **shown(job), records=list(records))


def kept(answer: Json) -> list[str]:
    assert answer["ok"], answer
    return [one["kept"] for one in answer["records"]]


def stored(served: Served, scope: str) -> list[Any]:
    return list(served.store.records(scope=scope).items)


def test_records_are_written_once_and_the_stronger_stays(
    served: Served, worker: httpx.Client, job: Json, queue: str
) -> None:
    coin = {"scope": queue, "source": "ebay", "external_id": "17", "data": {"title": "Dime", "price": 1.5}}
    lot = {"scope": queue, "source": "ebay", "data": {"title": "Lot of dimes", "url": "https://x.example/1?a=b"}}
    first = write(worker, job, coin, lot)
    assert kept(first) == ["created", "created"]
    assert first["records"][0]["dedupe_key"] == "ext_17"
    assert first["records"][1]["dedupe_key"].startswith("hash_")
    again = write(worker, job, coin, lot)
    assert kept(again) == ["existing", "existing"]
    assert [one["id"] for one in again["records"]] == [one["id"] for one in first["records"]]
    better = {**coin, "strength": 0.9, "data": {"title": "Dime, better", "price": 2}}
    assert kept(write(worker, job, better)) == ["replaced"]
    assert kept(write(worker, job, {**coin, "strength": 0.5})) == ["existing"]
    found = {record.dedupe_key: record for record in stored(served, queue)}
    assert found["ext_17"].data == better["data"]
    assert {(record.job_id, record.attempt) for record in found.values()} == {(job["job_id"], 1)}
    assert len(found) == 2


def test_the_only_record_of_a_scope_is_the_last_one(
    served: Served, worker: httpx.Client, job: Json, queue: str
) -> None:
    answers = [kept(write(worker, job, {"scope": queue, "data": {"n": n}, "replace": True})) for n in (1, 2)]
    assert answers == [["created"], ["replaced"]]
    [only] = stored(served, queue)
    assert (only.data, only.source, only.dedupe_key) == ({"n": 2}, "", "single")
    named = {"scope": queue, "source": "s", "dedupe_key": "mine", "data": [1]}
    assert write(worker, job, named)["records"][0]["dedupe_key"] == "mine"


def test_an_attempt_that_lost_its_lease_writes_nothing(
    served: Served, worker: httpx.Client, job: Json, queue: str
) -> None:
    say(worker, "release", **lease(job))
    assert claim(worker, queue)["job_id"] == job["job_id"]
    refused = write(worker, job, {"scope": queue, "source": "s", "data": {"title": "late"}})
    assert refused == {"ok": False, "reason": "lease_lost", "records": []}
    assert stored(served, queue) == []
    [refusal] = served.store.refusals(job["job_id"])
    assert (refusal.verb, refusal.reason, refusal.attempt) == ("record", "lease_lost", 1)


def test_nobody_writes_under_the_lease_of_another(served: Served, worker: httpx.Client, job: Json, queue: str) -> None:
    served.enqueue(queue)
    other = claim(worker, queue)
    record = {"scope": queue, "source": "s", "data": {"title": "forged"}}
    answers = [write(worker, {**job, "lease_token": other["lease_token"]}, record)]
    with served.client(token=served.new_token("worker")) as thief:
        answers.append(write(thief, job, record))
    assert [(answer["ok"], answer["reason"]) for answer in answers] == [(False, "unknown_lease")] * 2
    assert stored(served, queue) == []
    [refusal] = served.store.refusals(job["job_id"])
    assert (refusal.verb, refusal.count) == ("record", 2)


def test_a_token_of_one_queue_writes_for_its_jobs(served: Served, queue: str) -> None:
    with served.client(token=served.new_token("worker", queues=(queue,))) as limited:
        served.enqueue(queue)
        coin = {"scope": queue, "source": "s", "data": {"title": "a"}}
        assert kept(write(limited, claim(limited, queue), coin)) == ["created"]


@on_sqlite
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scope", ""),
        ("scope", "a\x00b"),
        ("source", 5),
        ("data", "a\x00b"),
        ("strength", "strong"),
        ("external_id", "a\x00b"),
        ("dedupe_key", ""),
    ],
)
def test_one_record_that_breaks_a_rule_is_named_and_none_is_written(
    served: Served, worker: httpx.Client, job: Json, queue: str, field: str, value: Any
) -> None:
    good = {"scope": queue, "source": "s", "data": {"title": "good"}}
    problem = write(worker, job, good, {**good, "data": {"title": "other"}, field: value}, status=422)
    assert field in problem["field"], problem
    assert "1" in problem["field"], "which of them"
    assert stored(served, queue) == []


@on_sqlite
def test_a_record_that_is_too_large_is_refused(served: Served, worker: httpx.Client, job: Json, queue: str) -> None:
    good = {"scope": queue, "source": "s", "data": {"title": "good"}}
    problem = write(worker, job, good, {**good, "data": {"title": "large", "text": "x" * 2**20}}, status=413)
    assert problem["limit_bytes"] > 0
    assert stored(served, queue) == []


@on_sqlite
def test_what_replaces_keeps_its_own_key(served: Served, worker: httpx.Client, job: Json, queue: str) -> None:
    def one(external_id: str, n: int, **named: Any) -> Json:
        return {"scope": queue, "external_id": external_id, "data": {"n": n}, "replace": True, **named}

    first = write(worker, job, one("1", 1), one("2", 2), one("1", 3, source="shop"))
    assert kept(first) == ["created"] * 3
    assert [record["dedupe_key"] for record in first["records"]] == ["ext_1", "ext_2", "ext_1"]
    assert kept(write(worker, job, one("1", 4, source="shop"), one("2", 5, dedupe_key="ext_2"))) == ["replaced"] * 2
    found = {(record.source, record.dedupe_key): record.data["n"] for record in stored(served, queue)}
    assert found == {("", "ext_1"): 1, ("", "ext_2"): 5, ("shop", "ext_1"): 4}


@on_sqlite
@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("replace", {"replace": True}, "external_id or a dedupe_key"),
        ("dedupe_key", {"external_id": "1", "dedupe_key": "ext_2"}, "must be ext_1"),
        ("dedupe_key", {"external_id": "1", "dedupe_key": "mine"}, "must be ext_1"),
        ("source", {"source": ""}, "must be named"),
        ("source", {"source": "", "dedupe_key": "hash_0123456789abcdef"}, "must be named"),
    ],
)
def test_what_does_not_go_together_is_refused(
    served: Served, worker: httpx.Client, job: Json, queue: str, field: str, change: Json, said: str
) -> None:
    good = {"scope": queue, "source": "s", "data": {"title": "good"}}
    problem = write(worker, job, good, {**good, **change}, status=422)
    assert (problem["field"], said in problem["detail"]) == (f"records.1.{field}", True), problem
    assert stored(served, queue) == []
