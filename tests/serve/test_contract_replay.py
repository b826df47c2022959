"""Whoever lost an answer asks again; whoever holds no lease changes nothing, and is on record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest

from tests.serve.grounds import Served
from tests.serve.speaking import Json, beat, claim, lease, say

VERBS: dict[str, dict[str, Any]] = {
    "complete": {"result": {"pages": 3}},
    "fail": {"error": {"code": "boom", "message": "it broke", "stack": None, "retryable": True}},
    "release": {},
}
EVENTS = {"complete": "succeeded", "fail": "retry_scheduled", "release": "released"}


def events(served: Served, job: Json) -> Counter[str]:
    return Counter(event.event for event in served.store.events(job["job_id"]))


@pytest.mark.parametrize("verb", VERBS)
def test_a_report_sent_ten_times_gets_one_answer_and_one_audit_row(
    served: Served, worker: httpx.Client, queue: str, verb: str
) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    answers = [say(worker, verb, **lease(job), **VERBS[verb]) for _ in range(10)]
    assert answers[0]["ok"]
    assert answers[0]["ack"]
    assert answers == [answers[0]] * 10
    assert events(served, job)[EVENTS[verb]] == 1


@pytest.mark.parametrize("verb", ["fail", "release"])
def test_also_after_the_job_has_moved_on(served: Served, worker: httpx.Client, queue: str, verb: str) -> None:
    served.enqueue(queue, retry=None)
    job = claim(worker, queue)
    first = say(worker, verb, **lease(job), **VERBS[verb])
    if verb == "fail":  # past its backoff, by the operator's hand
        served.store.cancel([job["job_id"]])
        served.store.requeue([job["job_id"]])
    with served.client(token=served.new_token("worker")) as other:
        successor = claim(other, queue)
        assert successor["attempt"] == 2
        for _ in range(3):
            assert say(worker, verb, **lease(job), **VERBS[verb]) == first
        assert say(other, "complete", **lease(successor), result=None)["ok"]
    assert say(worker, verb, **lease(job), **VERBS[verb]) == first
    assert events(served, job)[EVENTS[verb]] == 1
    assert not served.store.refusals(job["job_id"])


def test_another_word_about_a_finished_attempt_is_refused_and_acknowledged(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    say(worker, "complete", **lease(job), result=1)
    for verb, more in (("complete", {"result": 2}), ("fail", VERBS["fail"]), ("release", {})):
        answer = say(worker, verb, **lease(job), **more)
        assert (answer["ok"], answer["ack"], answer["reason"]) == (False, True, "conflicting_report")
    late = say(worker, "heartbeat", **beat(job))
    assert (late["ok"], late["reason"]) == (False, "lease_lost")
    assert served.store.job(job["job_id"]).result == 1


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "heartbeat"])
def test_a_lease_is_of_no_use_to_another_credential(
    served: Served, worker: httpx.Client, queue: str, verb: str
) -> None:
    served.enqueue(queue)
    job = claim(worker, queue)
    before = served.store.job(job["job_id"])
    with served.client(token=served.new_token("worker")) as other:
        shown = beat(job) if verb == "heartbeat" else {**lease(job), **VERBS[verb]}
        answer = say(other, verb, **shown)
    assert (answer["ok"], answer["reason"]) == (False, "unknown_lease")
    assert answer.get("ack", False) is False
    assert served.store.job(job["job_id"]) == before
    [refusal] = served.store.refusals(job["job_id"])
    assert (refusal.verb, refusal.reason, refusal.count) == (verb, "unknown_lease", 1)
    assert say(worker, "complete", **lease(job), result=None)["ok"]


def test_an_attempt_of_another_job_is_no_lease(served: Served, worker: httpx.Client, queue: str) -> None:
    served.enqueue(queue, 2)
    mine, other = claim(worker, queue), claim(worker, queue)
    mixed = {**lease(mine), "attempt_id": other["attempt_id"]}
    answer = say(worker, "complete", **mixed, result=1)
    assert (answer["ok"], answer["ack"]) == (False, False)
    [batch] = say(worker, "reports", reports=[{**mixed, "outcome": {"kind": "succeeded"}}])["answers"]
    assert (batch["ok"], batch["ack"]) == (False, False)
    assert [served.store.job(job["job_id"]).state for job in (mine, other)] == ["running", "running"]


def test_a_new_secret_keeps_the_leases(served: Served, queue: str) -> None:
    served.enqueue(queue)
    text = served.new_token("worker")
    with served.client(token=text) as before:
        job = claim(before, queue)
    name = next(token.name for token in served.store.tokens() if token.id in text)
    with served.client(token=served.store.rotate_token(name).text) as after:
        assert say(after, "heartbeat", **beat(job))["ok"]
        assert say(after, "complete", **lease(job), result=None)["ok"]
    with served.client(token=text) as old:
        assert say(old, "claim", 401, streams=[queue])["status"] == 401
