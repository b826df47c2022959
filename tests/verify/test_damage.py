"""Damage done behind the guards' back: verify names the job and the rule."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from holdfast.maintenance.verify import verify
from holdfast.stores.histories import Histories
from tests.verify.ledger import (
    CANCELLED,
    CANCELLING,
    DEAD,
    FAILED,
    FAR,
    LEASE_LOST,
    PENDING,
    PRUNED,
    RELEASED,
    REPLACED,
    REQUEUED,
    RETRYABLE,
    RUNNING,
    SECOND_LIFE,
    SUCCEEDED,
    guards_off,
    job_id,
)

ROW = "UPDATE holdfast_jobs SET {} WHERE id = :id"
EVENT = "UPDATE holdfast_events SET {} WHERE job_id = :id AND seq = {}"
LOSE = "DELETE FROM holdfast_events WHERE job_id = :id AND seq = {}"
COPY_LAST = (
    "INSERT INTO holdfast_events (job_id, seq, at, event, from_state, to_state, attempt, worker, lease)"
    " SELECT job_id, seq + 1, at, {}, attempt, worker, lease FROM holdfast_events"
    " WHERE job_id = :id ORDER BY seq DESC LIMIT 1"
)

# What was done, to which job, with what, and the rule that must name it.
DAMAGES: list[tuple[str, int, list[str], str]] = [
    ("the row was deleted", RUNNING, ["DELETE FROM holdfast_jobs WHERE id = :id"], "no_row"),
    ("the pruned event was lost", PRUNED, [LOSE.format(3)], "no_row"),
    ("the history was deleted", SUCCEEDED, ["DELETE FROM holdfast_events WHERE job_id = :id"], "no_history"),
    ("a pruned job came back", PRUNED, ["INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'x')"], "after_pruned"),
    ("something after pruned", PRUNED, [COPY_LAST.format("'claimed', 'pending', 'running'")], "after_pruned"),
    ("the first event was lost", SUCCEEDED, [LOSE.format(1)], "gap"),
    ("an event in the middle was lost", SUCCEEDED, [LOSE.format(3)], "gap"),
    ("the last event was lost", SUCCEEDED, [LOSE.format(7)], "gap"),
    ("a transition was not logged", PENDING, [ROW.format("seq = 2, transition = 'replaced'")], "gap"),
    ("an event of no name we know", FAILED, [EVENT.format("event = 'stolen'", 3)], "unknown_event"),
    ("an event that reached elsewhere", RELEASED, [EVENT.format("to_state = 'retryable'", 3)], "illegal_transition"),
    ("a success called back", SUCCEEDED, [COPY_LAST.format("'requeued', to_state, 'pending'")], "illegal_transition"),
    ("an event that came from elsewhere", SUCCEEDED, [EVENT.format("from_state = 'pending'", 4)], "broken_chain"),
    (
        "a log that was never started",
        PENDING,
        [EVENT.format("event = 'replaced', from_state = 'pending'", 1)],
        "broken_chain",
    ),
    ("an event before its time", SUCCEEDED, [EVENT.format("at = '2001-01-01T00:00:00.000000Z'", 3)], "time_order"),
    ("an event after its time", SUCCEEDED, [EVENT.format(f"at = '{FAR}'", 3)], "time_order"),
    (
        "a second lease while the first was held",
        SUCCEEDED,
        [EVENT.format("event = 'claimed', from_state = 'pending', to_state = 'running'", 3)],
        "lease_overlap",
    ),
    (
        "a second lease now",
        RUNNING,
        [
            COPY_LAST.format("'claimed', 'retryable', 'running'"),
            ROW.format("seq = seq + 1, attempt = attempt + 1, lease_token = 'thief'"),
        ],
        "lease_overlap",
    ),
    ("a claim without a lease", SUCCEEDED, [EVENT.format("lease = NULL", 4)], "claim_without_lease"),
    ("an outcome under an older lease", SUCCEEDED, [EVENT.format("lease = 'lease-1'", 7)], "wrong_lease"),
    ("an outcome of an older attempt", FAILED, [EVENT.format("attempt = 2", 7)], "wrong_lease"),
    ("an outcome under no lease", LEASE_LOST, [EVENT.format("lease = NULL", 3)], "wrong_lease"),
    ("a cancel request under another lease", CANCELLING, [EVENT.format("lease = 'forged'", 3)], "wrong_lease"),
    ("an attempt skipped", SUCCEEDED, [EVENT.format("attempt = 5", 4)], "attempt_not_growing"),
    ("an attempt repeated", SUCCEEDED, [EVENT.format("attempt = 1", 4)], "attempt_not_growing"),
    ("two outcomes", SUCCEEDED, [COPY_LAST.format("'failed', 'running', 'failed'")], "two_outcomes"),
    (
        "two outcomes, and the row went along",
        SECOND_LIFE,
        [
            COPY_LAST.format("'cancelled', 'running', 'cancelled'"),
            ROW.format("seq = seq + 1, state = 'cancelled', transition = 'cancelled'"),
        ],
        "two_outcomes",
    ),
    ("a state without a transition", RETRYABLE, [ROW.format("state = 'pending'")], "fold"),
    ("a state there is not", PENDING, [ROW.format("state = 'paused'")], "fold"),
    ("an attempt without a claim", REQUEUED, [ROW.format("attempt = 9")], "fold"),
    ("a row from a backup", REPLACED, [ROW.format("seq = 1, transition = 'enqueued'")], "fold"),
    ("a stolen lease", RUNNING, [ROW.format("lease_token = 'thief'")], "fold"),
    ("a lease of another owner", RUNNING, [ROW.format("lease_owner = 'thief'")], "fold"),
    ("a failure that was not", SUCCEEDED, [ROW.format("failures = failures + 1")], "counters"),
    ("a crash called a failure", DEAD, [ROW.format("failures = failures + 1, crashes = crashes - 1")], "counters"),
    ("a crash forgotten", LEASE_LOST, [ROW.format("crashes = 0")], "counters"),
    ("an update without a transition", SUCCEEDED, [ROW.format(f"updated_at = '{FAR}'")], "updated_at"),
    ("an end without a time", CANCELLED, [ROW.format("finished_at = NULL")], "finished_at"),
    ("a time without an end", PENDING, [ROW.format(f"finished_at = '{FAR}'")], "finished_at"),
    ("running without a token", RUNNING, [ROW.format("lease_token = NULL")], "running_without_lease"),
    ("running without an expiry", RUNNING, [ROW.format("lease_expires_at = NULL")], "running_without_lease"),
    ("a lease that outlived its job", SUCCEEDED, [ROW.format("lease_token = 'lease-3'")], "lease_without_running"),
]


@pytest.mark.parametrize(
    ("number", "statements", "rule"), [damage[1:] for damage in DAMAGES], ids=[damage[0] for damage in DAMAGES]
)
def test_damage_is_named(healthy: Engine, number: int, statements: list[str], rule: str) -> None:
    with guards_off(healthy) as connection:
        for statement in statements:
            assert connection.execute(text(statement), {"id": job_id(number)}).rowcount > 0
    verdict = verify(Histories(healthy))
    assert not verdict.ok
    [violation] = verdict.violations
    assert (violation.job_id, violation.rule) == (job_id(number), rule)


def test_every_damaged_job_is_named(healthy: Engine) -> None:
    with guards_off(healthy) as connection:
        connection.exec_driver_sql("UPDATE holdfast_jobs SET attempt = attempt + 1")
    verdict = verify(Histories(healthy), max_violations=5)
    assert [violation.job_id for violation in verdict.violations] == [job_id(n) for n in range(1, 6)]
    assert {violation.rule for violation in verdict.violations} == {"fold"}
    assert verdict.unlisted == 13


def test_a_time_beyond_all_times_is_damage_and_no_error(healthy: Engine) -> None:
    endless = "infinity" if healthy.dialect.name == "postgresql" else "zzz"
    with guards_off(healthy) as connection:
        connection.execute(text(EVENT.format(f"at = '{endless}'", 3)), {"id": job_id(SUCCEEDED)})
    assert [violation.rule for violation in verify(Histories(healthy)).violations] == ["time_order"]


# SQLite alone stores text in a column of numbers, and bytes in a column of text.
ODD_VALUES = [
    ("attempt", EVENT.format("attempt = 'two'", 4), "attempt_not_growing"),
    ("seq", EVENT.format("seq = 'four'", 4), "gap"),
    ("last seq", EVENT.format("seq = 7.5", 7), "gap"),
    ("failures", ROW.format("failures = 'many'"), "counters"),
    ("at", EVENT.format("at = x'00'", 4), "time_order"),
]


@pytest.mark.parametrize("page_events", [1, 4, 2000])
@pytest.mark.parametrize(("statement", "rule"), [odd[1:] for odd in ODD_VALUES], ids=[odd[0] for odd in ODD_VALUES])
@pytest.mark.parametrize("healthy_url", ["sqlite"], indirect=True)
def test_a_value_of_the_wrong_type_is_damage_and_no_error(
    healthy: Engine, statement: str, rule: str, page_events: int
) -> None:
    with guards_off(healthy) as connection:
        connection.execute(text(statement), {"id": job_id(SUCCEEDED)})
    found = [(violation.job_id, violation.rule) for violation in verify(Histories(healthy, page_events)).violations]
    assert found == [(job_id(SUCCEEDED), rule)]


@pytest.mark.parametrize("healthy_url", ["sqlite"], indirect=True)
def test_an_id_of_the_wrong_type_hides_no_other_job(healthy: Engine) -> None:
    jobs = verify(Histories(healthy)).jobs
    with healthy.connect() as connection, pytest.raises(IntegrityError):
        connection.exec_driver_sql("INSERT INTO holdfast_jobs (id, task) VALUES (x'00', 'x')")
    with guards_off(healthy) as connection:
        connection.exec_driver_sql("INSERT INTO holdfast_jobs (id, task) VALUES (x'00', 'x')")
        connection.commit()
    assert verify(Histories(healthy)).jobs == jobs
