"""Dead letters by their cause, on both stores."""

from __future__ import annotations

from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Report
from holdfast.stores.sql_store import SqlStore


def fail(store: SqlStore, message: str, code: str = "ValueError", **options: str) -> str:
    job_id = store.enqueue(
        NewJob(task=options.get("task", "collect"), queue=options.get("queue", "q"), max_attempts=1)
    ).id
    claimed = store.claim_job("worker", job_id)
    assert claimed is not None
    outcome = Failed(JobError(code, message, "stack"))
    store.settle([Report(job_id, claimed.attempt, claimed.lease_token, outcome, "worker")])
    return job_id


def test_they_are_grouped_by_task_code_and_message(store: SqlStore) -> None:
    fail(store, "article 1 has no price")
    newest = fail(store, "article 2 has no price")
    fail(store, "article 2 has no price", code="KeyError")
    fail(store, "article 2 has no price", task="other")
    found = store.dead_groups()
    assert (found.looked_at, found.at_least) == (4, False)
    first = found.groups[0]
    assert (first.task, first.code, first.count, first.example_id) == ("collect", "ValueError", 2, newest)
    assert first.message == "article 2 has no price"
    assert first.newest_at is not None
    assert len(found.groups) == 3


def test_no_more_than_so_many_are_looked_at_the_newest_first(store: SqlStore) -> None:
    for number in range(4):
        fail(store, f"cause {'abcd'[number]}")
    found = store.dead_groups(most=2)
    assert (found.looked_at, found.at_least) == (2, True)
    assert {group.message for group in found.groups} == {"cause c", "cause d"}


def test_those_of_some_queues(store: SqlStore) -> None:
    fail(store, "mine", queue="mine '\"{}")
    fail(store, "theirs", queue="theirs")
    assert [group.message for group in store.dead_groups(["mine '\"{}"]).groups] == ["mine"]
    assert store.dead_groups([]).groups == ()


def test_an_error_that_was_written_by_hand_is_no_reason_to_fail(store: SqlStore) -> None:
    job_id = fail(store, "x")
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE holdfast_jobs SET last_error = '{}'")
    [group] = store.dead_groups().groups
    assert (group.code, group.message, group.example_id) == (None, "", job_id)
