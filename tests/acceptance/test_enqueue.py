"""`holdfast enqueue` stores exactly the job that was asked for, and says its id."""

import uuid

import pytest

from holdfast.domain.manifest import TaskInfo
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess


def test_it_prints_the_id_of_the_job_it_stored_and_nothing_else(holdfast: CommandLine, store: SqlStore) -> None:
    done = holdfast("enqueue", "add", '{"a": 1, "b": [true, null, "é"]}').succeeded()

    job_id = done.out.removesuffix("\n")
    assert str(uuid.UUID(job_id)) == job_id
    assert done.err == ""
    assert store.job(job_id).payload == {"a": 1, "b": [True, None, "é"]}


def test_every_option_reaches_the_job(holdfast: CommandLine, store: SqlStore) -> None:
    done = holdfast(
        "enqueue", "fetch", "--queue", "slow", "--priority", "-7", "--delay", "10m", "--max-attempts", "5",
        "--unique", "--source", "shop", "--webhook", "https://x.example/done", "--json", LEASE_SECONDS="90",
    ).succeeded()  # fmt: skip

    assert done.document.keys() == {"id", "created", "state"}
    assert (done.document["created"], done.document["state"]) == (True, "pending")
    job = store.job(done.document["id"])
    assert (job.task, job.queue, job.priority, job.max_attempts, job.source) == ("fetch", "slow", -7, 5, "shop")
    assert job.payload == {}
    assert job.lease_seconds == 90
    assert job.unique_key == job.spec_hash
    assert job.webhook == {"url": "https://x.example/done", "on": ["succeeded", "failed"]}
    assert 599 <= (job.run_after - job.created_at).total_seconds() <= 601


ANNOUNCED = TaskInfo(
    "fetch",
    "7",
    defaults={
        "queue": "slow", "priority": 5, "max_attempts": 9, "max_crashes": 4, "timeout_seconds": 30.0,
        "lease_seconds": 120.0, "source": "shop", "retry": {"kind": "fixed", "base": 2.0}, "colour": "of a newer one",
    },
)  # fmt: skip


def test_what_is_not_given_is_as_a_worker_announced_it(here: InProcess, store: SqlStore) -> None:
    store.announce([ANNOUNCED])
    job = store.job(here("enqueue", "fetch", LEASE_SECONDS="90").succeeded().out.strip())
    assert (job.queue, job.priority, job.source, job.task_version) == ("slow", 5, "shop", "7")
    assert (job.max_attempts, job.max_crashes, job.timeout_seconds, job.lease_seconds) == (9, 4, 30, 120)
    assert job.retry is not None
    assert job.retry["kind"] == "fixed"

    flags = ("--queue", "fast", "--priority", "0", "--max-attempts", "3", "--source", "bank")
    job = store.job(here("enqueue", "fetch", *flags).succeeded().out.strip())
    assert (job.queue, job.priority, job.max_attempts, job.source) == ("fast", 0, 3, "bank")
    assert (job.max_crashes, job.task_version) == (4, "7")

    job = store.job(here("enqueue", "unknown", LEASE_SECONDS="90").succeeded().out.strip())
    assert (job.queue, job.priority, job.max_attempts, job.source) == ("default", 0, 3, None)
    assert (job.lease_seconds, job.task_version) == (90, None)


def test_a_unique_job_that_is_there_already_is_the_answer(here: InProcess) -> None:
    first = here("enqueue", "add", '{"a": 1, "b": 2}', "--unique").succeeded()
    again = here("enqueue", "add", '{"b": 2, "a": 1}', "--unique", "--json").succeeded()
    in_words = here("enqueue", "add", '{"a": 1, "b": 2}', "--unique").succeeded()

    assert again.document == {"id": first.out.strip(), "created": False, "state": "pending"}
    assert in_words.out == first.out
    assert "already" in in_words.err


def test_a_dash_reads_the_payload_from_standard_input(holdfast: CommandLine, store: SqlStore) -> None:
    done = holdfast("enqueue", "add", "-", stdin='{"text": "from a pipe, ünïcode"}').succeeded()

    assert store.job(done.out.strip()).payload == {"text": "from a pipe, ünïcode"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("x", "[1, 2]"), ("payload", "JSON object", "array")),
        (("x", "{"), ("payload", "JSON")),
        (("x", ""), ("payload", "JSON")),
        (("x", '{"a": NaN}'), ("payload", "NaN")),
        (("x", '{"a": "\\u0000"}'), ("payload", "NUL")),
        (("x", "--queue", ""), ("queue", "empty")),
        (("x", "--priority", "101"), ("priority", "between -100 and 100", "101")),
        (("x", "--priority", "high"), ("--priority", "integer")),
        (("x", "--delay", "soon"), ("delay", "duration", "soon")),
        (("x", "--delay", "-5"), ("delay", "duration")),
        (("x", "--max-attempts", "0"), ("max_attempts", "between 1 and")),
        (("x", "--source", "a\nb"), ("source", "control characters")),
        (("", "{}"), ("task", "empty")),
        (("y" * 201,), ("task", "200 characters")),
        ((), ("TASK",)),
        (("x", "{}", "{}"), ("unexpected",)),
        (("x", "--colour", "red"), ("--colour",)),
        (("x", "--database", "sqlite:///y.db"), ("--database", "before the command")),
    ],
)
def test_a_refused_input_names_the_field_and_the_rule_and_stores_nothing(
    inside: InProcess, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    inside("enqueue", *arguments).refused(*parts)

    assert list(inside.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("stdin", "rule"),
    [
        (b"", "JSON"),
        (b"\xff{}", "JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
        (b'{"a": "' + b"b" * 300_000 + b'"}', "the limit is 262,144"),
        (b'"text"', "a string"),
    ],
)
def test_a_refused_payload_on_standard_input_stores_nothing(inside: InProcess, stdin: bytes, rule: str) -> None:
    inside("enqueue", "x", "-", stdin=stdin).refused("payload", rule)

    assert list(inside.folder.iterdir()) == []


def test_a_refusal_looks_the_same_from_outside(bare: CommandLine) -> None:
    bare("enqueue", "x", "--priority", "101").refused("holdfast: priority: must be between -100 and 100, got 101\n")
    bare("enqueue", "x", "-", stdin=b"\xff").refused("payload", "JSON")
    assert list(bare.folder.iterdir()) == []
