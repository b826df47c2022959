"""A refused input names the field and the rule, and changes nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Released, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand
from tests.contract.steps import beat, claim_ids, enqueue, new, postgres_later, start


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


# name: options, the field that is named, a word of the rule
BAD_JOBS: dict[str, tuple[dict[str, Any], str, str]] = {
    "payload is a list": ({"payload": [1, 2]}, "payload", "must be a JSON object, got list"),
    "payload is a string": ({"payload": "{}"}, "payload", "must be a JSON object, got str"),
    "payload is null": ({"payload": None}, "payload", "must be a JSON object"),
    "NaN": ({"payload": {"x": float("nan")}}, "payload.x", "NaN"),
    "infinity": ({"payload": {"x": [1, float("inf")]}}, "payload.x[1]", "infinities"),
    "minus infinity": ({"payload": {"x": {"y": float("-inf")}}}, "payload.x.y", "infinities"),
    "payload of 300 KiB": ({"payload": {"x": "a" * 300 * 1024}}, "payload", "the limit is 262,144"),
    "payload of 300 KiB in fewer characters": ({"payload": {"x": "€" * 100 * 1024}}, "payload", "the limit is 262,144"),
    "NUL in the payload": ({"payload": {"x": "a\x00b"}}, "payload.x", "NUL"),
    "NUL in a key of the payload": ({"payload": {"a\x00b": 1}}, "payload", "NUL"),
    "lone surrogate": ({"payload": {"x": "\ud800"}}, "payload.x", "surrogate"),
    "lone surrogate in a key": ({"payload": {"\udfff": 1}}, "payload", "surrogate"),
    "deep nesting": ({"payload": nested(100)}, "payload", "nested deeper than 64"),
    "payload that holds itself": ({"payload": endless()}, "payload", "nested deeper than 64"),
    "key that is a number": ({"payload": {1: 2}}, "payload", "keys of an object must be strings, got 1"),
    "set in the payload": ({"payload": {"x": {1, 2}}}, "payload.x", "set, which JSON cannot express"),
    "datetime in the payload": ({"payload": {"x": timedelta(1)}}, "payload.x", "timedelta, which JSON cannot express"),
    "bytes in the payload": ({"payload": {"x": b"1"}}, "payload.x", "bytes, which JSON cannot express"),
    "number of 5,000 digits": ({"payload": {"x": 10**5_000}}, "payload.x", "digits"),
    "empty task": ({"task": ""}, "task", "must not be empty"),
    "task that is no text": ({"task": 7}, "task", "must be a string, got int"),
    "empty queue": ({"queue": ""}, "queue", "must not be empty"),
    "queue of blanks": ({"queue": "  "}, "queue", "must not be empty"),
    "queue of 1,000 characters": ({"queue": "q" * 1_000}, "queue", "at most 200 characters, got 1000"),
    "NUL in the queue": ({"queue": "a\x00b"}, "queue", "control characters"),
    "newline in the queue": ({"queue": "a\nb"}, "queue", "control characters"),
    "lone surrogate in the queue": ({"queue": "\ud800"}, "queue", "surrogate"),
    "queue is null": ({"queue": None}, "queue", "must be a string"),
    "NUL in the unique key": ({"unique_key": "a\x00b"}, "unique_key", "control characters"),
    "unique key of 1,000 characters": ({"unique_key": "k" * 1_000}, "unique_key", "at most 200"),
    "empty unique key": ({"unique_key": ""}, "unique_key", "must not be empty"),
    "NUL in the source": ({"source": "a\x00b"}, "source", "control characters"),
    "NUL in the version": ({"version": "a\x00b"}, "version", "control characters"),
    "unique is a word": ({"unique": "yes"}, "unique", "must be true or false"),
    "naive datetime": ({"run_after": datetime.fromisoformat("2030-01-01T00:00:00")}, "run_after", "time zone"),
    "run_after is text": ({"run_after": "2030-01-01T00:00:00Z"}, "run_after", "must be a datetime, got str"),
    "delay and run_after": (
        {"delay": 1, "run_after": datetime.now(UTC)},
        "delay",
        "together with run_after; choose one",
    ),
    "negative delay": ({"delay": -1}, "delay", "may not be negative"),
    "negative delay as timedelta": ({"delay": timedelta(seconds=-1)}, "delay", "may not be negative"),
    "endless delay": ({"delay": float("inf")}, "delay", "endless"),
    "delay that is not a number": ({"delay": float("nan")}, "delay", "endless"),
    "delay of a century": ({"delay": "36500d"}, "delay", "at most ten years"),
    "delay with more digits than a float has": ({"delay": 10**400}, "delay", "at most ten years"),
    "delay in words": ({"delay": "soon"}, "delay", "must be a duration"),
    "delay is true": ({"delay": True}, "delay", "must be a duration"),
    "priority 101": ({"priority": 101}, "priority", "between -100 and 100, got 101"),
    "priority -101": ({"priority": -101}, "priority", "between -100 and 100, got -101"),
    "priority true": ({"priority": True}, "priority", "must be a whole number, got True"),
    "priority 1.5": ({"priority": 1.5}, "priority", "must be a whole number"),
    "priority null": ({"priority": None}, "priority", "must be a whole number"),
    "no attempts": ({"max_attempts": 0}, "max_attempts", "between 1 and"),
    "no crashes": ({"max_crashes": 0}, "max_crashes", "between 1 and"),
    "attempts without end": ({"max_attempts": 10**9}, "max_attempts", "between 1 and"),
    "timeout of nothing": ({"timeout_seconds": 0}, "timeout_seconds", "must be more than zero"),
    "lease of nothing": ({"lease_seconds": 0}, "lease_seconds", "must be more than zero"),
    "negative lease": ({"lease_seconds": -5}, "lease_seconds", "may not be negative"),
    "lease of null": ({"lease_seconds": None}, "lease_seconds", "must be a duration"),
    "reuse of nothing": ({"reuse_seconds": 0}, "reuse_seconds", "must be more than zero"),
    "id that is no UUID": ({"id": "job-1"}, "id", "must be a UUID"),
    "id that is a number": ({"id": 5}, "id", "must be a UUID"),
    "replay of no UUID": ({"replay_of": "job-1"}, "replay_of", "must be a UUID"),
    "retry of an unknown kind": ({"retry": {"kind": "random"}}, "retry.kind", "must be one of"),
    "retry with an unknown option": ({"retry": {"basis": 1}}, "retry", "unknown option 'basis'"),
    "retry that is a number": ({"retry": 5}, "retry", "must be a RetryPolicy"),
    "retry with jitter over 1": ({"retry": {"jitter": 1.5}}, "retry.jitter", "between 0 and 1"),
    "retry beyond a day": ({"retry": {"base": "2d"}}, "retry.base", "86400"),
    "unknown option": ({"colour": "red"}, "colour", "unknown option; known are"),
}


@pytest.mark.parametrize(("options", "field", "rule"), BAD_JOBS.values(), ids=BAD_JOBS.keys())
@postgres_later
def test_a_bad_job_is_refused_before_anything_is_stored(
    store: SqlStore, by_hand: ByHand, options: dict[str, Any], field: str, rule: str
) -> None:
    before = by_hand.everything()
    with pytest.raises(InvalidInput) as caught:
        store.enqueue_many([new(), NewJob.from_options({"task": "add", **options}), new()])
    assert caught.value.field.startswith(field)
    assert rule in caught.value.rule
    assert str(caught.value).startswith(f"{field}")
    assert by_hand.everything() == before


def test_a_job_without_a_task_is_refused() -> None:
    with pytest.raises(InvalidInput, match="task: is required"):
        NewJob.from_options({"queue": "a"})


def test_the_largest_payload_is_accepted(store: SqlStore) -> None:
    size = 256 * 1024 - len('{"x":""}')
    job_id = enqueue(store, payload={"x": "a" * size})
    assert len(store.job(job_id).payload["x"]) == size
    with pytest.raises(InvalidInput, match="262,145"):
        new(payload={"x": "a" * (size + 1)})


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"limit": True}, "limit"),
        ({"worker": ""}, "worker"),
        ({"worker": "a\x00b"}, "worker"),
        ({"worker": "w" * 1_000}, "worker"),
        ({"queues": "default"}, "queues"),
        ({"queues": ["a\x00b"]}, "queues"),
        ({"queues": [""]}, "queues"),
        ({"tasks": "add"}, "tasks"),
        ({"tasks": [7]}, "tasks"),
        ({"tasks": [["add"]]}, "tasks"),
        ({"queues": [{}]}, "queues"),
    ],
    ids=str,
)
@postgres_later
def test_a_bad_claim_is_refused(store: SqlStore, wanted: dict[str, Any], field: str) -> None:
    job_id = enqueue(store)
    with pytest.raises(InvalidInput) as caught:
        store.claim(**{"worker": "ann", **wanted})
    assert caught.value.field == field
    assert claim_ids(store) == [job_id]


BAD_ID = "not-a-job"


def test_a_job_id_that_is_none_is_named_by_every_verb(store: SqlStore, by_hand: ByHand) -> None:
    good = start(store)
    before = by_hand.everything()
    verbs: dict[str, Any] = {
        "claim_job": lambda: store.claim_job("ann", BAD_ID),
        "heartbeat": lambda: store.heartbeat([beat(good), Beat(BAD_ID, 1, "token")]),
        "settle": lambda: store.settle(
            [Report(good.job_id, 1, good.lease_token, Released()), Report(BAD_ID, 1, "token", Succeeded())]
        ),
        "cancel": lambda: store.cancel([good.job_id, BAD_ID]),
        "requeue": lambda: store.requeue([BAD_ID]),
        "job": lambda: store.job(BAD_ID),
        "events": lambda: store.events(BAD_ID),
        "attempts": lambda: store.attempts(BAD_ID),
        "refusals": lambda: store.refusals(BAD_ID),
        "jobs": lambda: store.jobs(after=BAD_ID),
    }
    for name, verb in verbs.items():
        with pytest.raises(InvalidInput, match="must be a UUID, got 'not-a-job'") as caught:
            verb()
        assert caught.value.field == ("after" if name == "jobs" else "job_id"), name
    assert by_hand.everything() == before


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"max_concurrent": -1}, "max_concurrent"),
        ({"max_concurrent": 1.5}, "max_concurrent"),
        ({"rate_limit_per_minute": 0}, "rate_limit_per_minute"),
        ({"rate_limit_per_minute": -1}, "rate_limit_per_minute"),
        ({"rate_limit_per_minute": float("nan")}, "rate_limit_per_minute"),
        ({"rate_limit_per_minute": "fast"}, "rate_limit_per_minute"),
        ({"burst": 0}, "burst"),
        ({"burst": None}, "burst"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"paused_until": datetime.fromisoformat("2030-01-01T00:00:00")}, "paused_until"),
        ({"breaker_threshold": 0}, "breaker_threshold"),
        ({"breaker_pause_seconds": 0}, "breaker_pause_seconds"),
        ({"max_concurrnt": 1}, "max_concurrnt"),
    ],
    ids=str,
)
@postgres_later
def test_a_bad_limit_of_a_source_is_refused(
    store: SqlStore, by_hand: ByHand, limits: dict[str, Any], field: str
) -> None:
    before = by_hand.everything()
    with pytest.raises(InvalidInput) as caught:
        store.set_source("shop", **limits)
    assert caught.value.field == field
    assert by_hand.everything() == before


@pytest.mark.parametrize("limit", [-1, True, 1.5, "two", 10**12])
@postgres_later
def test_a_bad_limit_of_a_queue_is_refused(store: SqlStore, by_hand: ByHand, limit: Any) -> None:
    before = by_hand.everything()
    with pytest.raises(InvalidInput, match="max_running"):
        store.limit_queue("default", limit)
    assert by_hand.everything() == before


@pytest.mark.parametrize("name", ["", "q" * 1_000, "a\x00b", 7])
@postgres_later
def test_a_bad_name_is_refused_by_what_operators_do(store: SqlStore, by_hand: ByHand, name: Any) -> None:
    before = by_hand.everything()
    for act in (store.pause_queue, store.resume_queue, store.set_source, lambda name: store.limit_queue(name, 1)):
        with pytest.raises(InvalidInput):
            act(name)
    for filters in ({"queue": name}, {"task": name}):
        with pytest.raises(InvalidInput):
            store.jobs(**filters)
    assert by_hand.everything() == before


@pytest.mark.parametrize("limit", [0, -1, 1_001, True])
@postgres_later
def test_a_bad_page_size_is_refused(store: SqlStore, limit: int) -> None:
    for listing in (store.jobs, store.stuck):
        with pytest.raises(InvalidInput, match="limit"):
            listing(limit=limit)


def test_an_unknown_state_in_a_filter_is_refused(store: SqlStore) -> None:
    states: Any = ["pending", "sleeping"]
    with pytest.raises(InvalidInput, match=r"states.*sleeping"):
        store.jobs(states=states)


def test_every_refusal_is_one_of_ours() -> None:
    """Whoever catches HoldfastError catches all of the above; whoever expects ValueError gets that."""
    assert issubclass(InvalidInput, HoldfastError)
    assert issubclass(InvalidInput, ValueError)
