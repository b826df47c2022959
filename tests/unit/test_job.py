"""A NewJob is always storable: whoever holds one holds something that was checked."""

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

from holdfast.domain.errors import Conflict, HoldfastError, InvalidInput, NotFound, SchemaMismatch
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.spec import spec_hash

NAME = "queue"


def test_only_a_task_is_needed() -> None:
    job = NewJob(task="add")
    assert (job.payload, job.queue, job.priority, job.version) == ({}, "default", 0, None)
    assert (job.max_attempts, job.max_crashes, job.lease_seconds) == (3, 3, 60.0)
    assert (job.payload_json, job.spec_hash) == ("{}", spec_hash("add", None, {}))


def test_payloads_are_not_shared() -> None:
    assert NewJob(task="a").payload is not NewJob(task="b").payload


def test_it_cannot_be_changed_afterwards() -> None:
    job = NewJob(task="add")
    with pytest.raises(FrozenInstanceError):
        setattr(job, NAME, "other")


def test_another_with_other_arguments_is_as_if_it_had_been_made_so() -> None:
    first = NewJob(task="add", payload={"a": 1}, priority=7, delay="1m", unique=True)
    other = first.with_payload({"a": 2})
    assert other == NewJob(task="add", payload={"a": 2}, priority=7, delay="1m", unique=True)
    assert (other.key, other.payload_json) == (spec_hash("add", None, {"a": 2}), '{"a":2}')
    assert first == NewJob(task="add", payload={"a": 1}, priority=7, delay="1m", unique=True)
    with pytest.raises(InvalidInput):
        first.with_payload({"a": float("nan")})


def test_what_happens_to_a_payload_later_does_not_happen_to_the_job() -> None:
    payload = {"a": 1}
    job = NewJob(task="add", payload=payload)
    payload["a"] = 2
    assert job.payload_json == '{"a":1}'


@pytest.mark.parametrize(
    ("unique", "unique_key", "key"), [(False, None, None), (True, None, "spec"), (False, "k", "k"), (True, "k", "k")]
)
def test_the_key_is_the_one_given_or_the_spec(unique: bool, unique_key: str | None, key: str | None) -> None:
    job = NewJob(task="add", unique=unique, unique_key=unique_key)
    assert job.key == (job.spec_hash if key == "spec" else key)


def test_scheduling_is_no_part_of_the_spec() -> None:
    plain = NewJob(task="add", payload={"a": 1})
    scheduled = NewJob(
        task="add",
        payload={"a": 1},
        queue="other",
        priority=9,
        delay="1h",
        max_attempts=9,
        max_crashes=9,
        retry=RetryPolicy("fixed"),
        timeout_seconds=1,
        lease_seconds=5,
        source="shop",
        unique_key="k",
        reuse_seconds=1,
        id="01890a5d-ac96-774b-bcce-b302099a8057",
        traceparent="00-abc",
    )
    assert scheduled.spec_hash == plain.spec_hash
    assert NewJob(task="add", payload={"a": 1}, version="2").spec_hash != plain.spec_hash


def test_durations_may_be_written_as_people_write_them() -> None:
    job = NewJob.from_options(
        {"task": "add", "delay": "10m", "timeout_seconds": "1h", "lease_seconds": "30s", "reuse_seconds": timedelta(1)}
    )
    assert (job.delay, job.timeout_seconds, job.lease_seconds, job.reuse_seconds) == (600.0, 3_600.0, 30.0, 86_400.0)


def test_loose_options_make_the_same_job() -> None:
    options = {"task": "add", "payload": {"a": 1}, "retry": {"kind": "fixed", "base": "5s"}, "version": 2}
    job = NewJob.from_options(options)
    assert job == NewJob(task="add", payload={"a": 1}, retry=RetryPolicy("fixed", 5.0), version="2")
    assert options["retry"] == {"kind": "fixed", "base": "5s"}, "and are left as they were"


def test_an_unknown_option_is_named_with_those_that_are_known() -> None:
    no_options: Any = []
    with pytest.raises(InvalidInput, match=r"colour: unknown option; known are .*queue.*task") as caught:
        NewJob.from_options({"task": "add", "colour": "red"})
    assert "payload_json" not in str(caught.value), "what is derived cannot be given"
    with pytest.raises(InvalidInput, match="job: must be an object, got list"):
        NewJob.from_options(no_options)


def test_a_token_is_not_shown() -> None:
    shown = [item.name for item in fields(Claimed) if item.repr]
    assert "lease_token" not in shown


def test_errors_are_one_tree() -> None:
    for kind in (InvalidInput, Conflict, NotFound, SchemaMismatch):
        assert issubclass(kind, HoldfastError)
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(NotFound, LookupError)
    error = Conflict("id", "is taken")
    assert (error.field, error.rule, str(error)) == ("id", "is taken", "id: is taken")
