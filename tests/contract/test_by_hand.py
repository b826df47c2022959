"""The database enforces the lifecycle by itself: SQL typed by hand leaves its audit row, or is refused."""

from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError

from holdfast.domain.answers import Status
from holdfast.domain.lifecycle import MANUAL_EVENTS, TERMINAL, State
from holdfast.domain.outcome import Released, Succeeded
from holdfast.stores.ids import new_ids
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import FAR, ByHand, Clock, on_postgres, on_sqlite
from tests.contract.steps import (
    BROKEN,
    claim,
    claim_ids,
    enqueue,
    history,
    job_in,
    new,
    reap,
    settle,
    settle_well,
    start,
)

LEASE = f"lease_token = 'typed', lease_expires_at = '{FAR}'"


def typed(source: State, target: State) -> str:
    lease = f", {LEASE}" if target is State.RUNNING else ""
    return f"UPDATE holdfast_jobs SET state = '{target}'{lease} WHERE state = '{source}'"


# Legal updates


@pytest.mark.parametrize(
    ("source", "target"), list(MANUAL_EVENTS), ids=[f"{source}-{target}" for source, target in MANUAL_EVENTS]
)
def test_a_legal_update_leaves_a_correct_audit_row(
    store: SqlStore, by_hand: ByHand, source: State, target: State
) -> None:
    job_id = job_in(store, source)
    before = store.job(job_id)
    by_hand(typed(source, target))
    after = store.job(job_id)
    assert after.state is target
    assert (after.seq, after.transition) == (before.seq + 1, str(MANUAL_EVENTS[source, target]))
    event = store.events(job_id)[-1]
    assert (event.seq, event.event) == (after.seq, after.transition)
    assert (event.from_state, event.to_state, event.attempt) == (str(source), str(target), after.attempt)
    assert event.at == after.updated_at >= before.updated_at
    assert event.detail is not None
    assert event.detail["manual"] is True


@pytest.mark.parametrize("source", [State.PENDING, State.RETRYABLE])
def test_a_claim_by_hand_is_a_whole_claim(store: SqlStore, by_hand: ByHand, source: State) -> None:
    job_id = job_in(store, source)
    before = store.job(job_id)
    by_hand(typed(source, State.RUNNING))
    job = store.job(job_id)
    assert (job.attempt, job.lease_owner, job.claimed_at) == (before.attempt + 1, "manual", job.updated_at)
    assert (job.failures, job.crashes) == (before.failures, before.crashes)
    assert job.started_at == (before.started_at or job.updated_at)
    event = store.events(job_id)[-1]
    assert (event.worker, event.lease) == ("manual", "typed")
    assert claim_ids(store) == []


def test_a_claim_by_hand_needs_a_token_and_an_expiry(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    for lease in ("", ", lease_token = 'typed'", f", lease_expires_at = '{FAR}'"):
        with by_hand.refused("running_has_lease"):
            by_hand(f"UPDATE holdfast_jobs SET state = 'running'{lease}")


def test_a_lease_ended_by_hand_is_ended(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    by_hand(typed(State.RUNNING, State.PENDING))
    job = store.job(claimed.job_id)
    assert (job.lease_owner, job.lease_expires_at, job.attempt) == (None, None, 1)
    event = store.events(claimed.job_id)[-1]
    assert (event.event, event.worker) == ("released", "ann")
    assert event.lease == store.events(claimed.job_id)[-2].lease
    assert not settle(store, claimed, Succeeded()).ok
    assert claim(store).attempt == 2


@pytest.mark.parametrize("target", [State.FAILED, State.RETRYABLE])
def test_a_failure_by_hand_charges_one_failure(store: SqlStore, by_hand: ByHand, target: State) -> None:
    claimed = start(store)
    by_hand(typed(State.RUNNING, target))
    job = store.job(claimed.job_id)
    assert (job.failures, job.crashes) == (1, 0)
    assert (job.finished_at is not None) == (target is State.FAILED)


def test_a_crash_may_be_charged_by_hand_instead(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    by_hand("UPDATE holdfast_jobs SET state = 'failed', crashes = crashes + 1")
    assert store.job(claimed.job_id).crashes == 1


@pytest.mark.parametrize("source", [State.FAILED, State.CANCELLED])
def test_a_requeue_by_hand_resets_the_budgets(store: SqlStore, by_hand: ByHand, source: State) -> None:
    job_id = job_in(store, source)
    by_hand(typed(source, State.PENDING))
    job = store.job(job_id)
    assert (job.failures, job.crashes, job.finished_at, job.cancel_requested_at) == (0, 0, None, None)
    assert claim(store).job_id == job_id


def test_a_requeue_by_hand_forgets_the_request_to_cancel(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    store.cancel([claimed.job_id])
    settle_well(store, claimed, Released())
    by_hand(typed(State.CANCELLED, State.PENDING))
    assert store.job(claimed.job_id).cancel_requested_at is None
    assert settle_well(store, claim(store), Released()).state is State.PENDING


@pytest.mark.parametrize("target", TERMINAL)
def test_an_end_by_hand_has_a_time(store: SqlStore, by_hand: ByHand, target: State) -> None:
    claimed = start(store)
    by_hand(typed(State.RUNNING, target))
    job = store.job(claimed.job_id)
    assert job.finished_at == job.updated_at


def test_a_cancel_requested_by_hand_is_one(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    by_hand(f"UPDATE holdfast_jobs SET cancel_requested_at = '{FAR}'")
    event = store.events(claimed.job_id)[-1]
    assert (event.event, event.from_state, event.to_state, event.worker) == (
        "cancel_requested",
        "running",
        "running",
        "ann",
    )
    assert settle_well(store, claimed, Released()).state is State.CANCELLED


def test_many_rows_in_one_statement_each_leave_their_row(store: SqlStore, by_hand: ByHand) -> None:
    ids = [enqueue(store) for _ in range(20)]
    by_hand("UPDATE holdfast_jobs SET state = 'cancelled'")
    assert {tuple(history(store, job_id)) for job_id in ids} == {("enqueued", "cancelled")}


def test_a_statement_with_one_illegal_row_changes_none(store: SqlStore, by_hand: ByHand) -> None:
    for state in (State.PENDING, State.PENDING, State.SUCCEEDED):
        job_in(store, state)
    with by_hand.refused():
        by_hand("UPDATE holdfast_jobs SET state = 'cancelled'")


@on_postgres
def test_the_log_says_which_role_typed_it(store: SqlStore, by_hand: ByHand) -> None:
    job_id = enqueue(store)
    by_hand(typed(State.PENDING, State.CANCELLED))
    [(role,)] = by_hand("SELECT session_user")
    assert store.events(job_id)[-1].detail == {"manual": True, "role": role}


@pytest.mark.parametrize(
    "change",
    [
        "priority = 7",
        "queue = 'other'",
        f"run_after = '{FAR}'",
        "max_attempts = 9",
        "lease_seconds = 5",
        "payload = '{\"a\": 1}'",
        "task = 'other'",
    ],
)
def test_scheduling_by_hand_is_no_transition(store: SqlStore, by_hand: ByHand, change: str) -> None:
    job_id = enqueue(store)
    before, log = store.job(job_id), store.events(job_id)
    by_hand(f"UPDATE holdfast_jobs SET {change}")
    after = store.job(job_id)
    assert after != before
    assert (after.seq, after.updated_at) == (before.seq, before.updated_at)
    assert store.events(job_id) == log


def test_the_time_of_a_hand_typed_move_never_runs_backwards(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    clock.move(1_000_000)
    job_id = enqueue(store)
    clock.move(-2_000_000)
    by_hand(typed(State.PENDING, State.CANCELLED))
    first, second = store.events(job_id)
    assert second.at == first.at == clock.now() + timedelta(seconds=2_000_000)


# Illegal updates


def test_a_finished_job_cannot_run_again(store: SqlStore, by_hand: ByHand) -> None:
    job_in(store, State.SUCCEEDED)
    with by_hand.refused("lifecycle"):
        by_hand(typed(State.SUCCEEDED, State.RUNNING))


@pytest.mark.parametrize("source", State)
def test_a_move_that_the_lifecycle_does_not_have_is_refused(store: SqlStore, by_hand: ByHand, source: State) -> None:
    job_in(store, source)
    for target in State:
        if target is not source and (source, target) not in MANUAL_EVENTS:
            with by_hand.refused("lifecycle"):
                by_hand(typed(source, target))


@pytest.mark.parametrize("state", State)
def test_what_the_log_accounts_for_does_not_change_without_a_transition(
    store: SqlStore, by_hand: ByHand, state: State
) -> None:
    job_in(store, state)
    for change in (
        "seq = seq + 1",
        "seq = seq - 1",
        "seq = seq + 2",
        "attempt = attempt + 1",
        "attempt = 0, failures = 5",
        "failures = failures + 1",
        "crashes = crashes + 1",
        "transition = 'replaced'",
        f"updated_at = '{FAR}'",
        "id = '01890a5d-ac96-774b-bcce-b302099a8057'",
    ):
        with by_hand.refused("lifecycle"):
            by_hand(f"UPDATE holdfast_jobs SET {change}")


@pytest.mark.parametrize("state", State)
def test_owner_and_end_of_a_job_do_not_change_without_a_transition_either(
    store: SqlStore, by_hand: ByHand, state: State
) -> None:
    """Refused, or without effect: `verify` accounts for these columns too, and must not be made to cry wolf."""
    job_id = job_in(store, state)
    before = store.job(job_id)
    for change in (f"finished_at = '{FAR}'", "finished_at = NULL", "lease_owner = 'eve'", "lease_owner = NULL"):
        with suppress(IntegrityError):
            by_hand(f"UPDATE holdfast_jobs SET {change}")
        assert store.job(job_id) == before, change


def test_a_lease_is_not_stolen_by_hand(store: SqlStore, by_hand: ByHand) -> None:
    start(store)
    for change in (
        "lease_token = 'stolen'",
        f"lease_token = 'stolen', cancel_requested_at = '{FAR}'",
        f"lease_token = 'stolen', cancel_requested_at = '{FAR}', seq = seq + 1, transition = 'cancel_requested'",
        f"lease_token = 'stolen', lease_owner = 'eve', lease_expires_at = '{FAR}'",
    ):
        with by_hand.refused():
            by_hand(f"UPDATE holdfast_jobs SET {change}")


def test_skipping_a_number_is_refused(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    for seq in ("seq + 2", "99", "seq - 1"):
        with by_hand.refused("lifecycle"):
            by_hand(
                f"UPDATE holdfast_jobs SET state = 'running', transition = 'claimed', seq = {seq},"
                f" attempt = attempt + 1, lease_owner = 'eve', {LEASE}"
            )


def test_a_move_into_the_past_is_refused(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    with by_hand.refused("lifecycle"):
        by_hand(
            "UPDATE holdfast_jobs SET state = 'cancelled', transition = 'cancelled', seq = seq + 1,"
            f" updated_at = '2001-01-01T00:00:00.000000Z', finished_at = '{FAR}'"
        )


def test_a_budget_cannot_be_refilled_with_a_move(store: SqlStore, by_hand: ByHand) -> None:
    job_in(store, State.RETRYABLE)
    for change in ("failures = 0", "crashes = 5", "attempt = 0"):
        with by_hand.refused("lifecycle"):
            by_hand(f"UPDATE holdfast_jobs SET state = 'cancelled', {change}")


# Insert and delete


@pytest.mark.parametrize("state", [state for state in State if state is not State.PENDING])
def test_a_job_is_only_inserted_as_pending(store: SqlStore, by_hand: ByHand, state: State) -> None:
    enqueue(store)
    # Such as the checks of the table would let in.
    lease = f"'typed', 'typed', '{FAR}'" if state is State.RUNNING else "NULL, NULL, NULL"
    finished = f"'{FAR}'" if state in TERMINAL else "NULL"
    columns = "task, state, lease_owner, lease_token, lease_expires_at, finished_at"
    with by_hand.refused("inserted as pending"):
        by_hand(f"INSERT INTO holdfast_jobs ({columns}) VALUES ('add', '{state}', {lease}, {finished})")


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("seq", "2"),
        ("transition", "'claimed'"),
        ("attempt", "1"),
        ("failures", "1"),
        ("crashes", "1"),
        ("payload", "'[1, 2]'"),
        ("payload", "'\"text\"'"),
        ("payload", "'null'"),
        ("payload", "'1'"),
    ],
)
def test_a_job_is_only_inserted_fresh(store: SqlStore, by_hand: ByHand, columns: str, values: str) -> None:
    enqueue(store)
    with by_hand.refused("inserted as pending, with a JSON object as payload"):
        by_hand(f"INSERT INTO holdfast_jobs (task, {columns}) VALUES ('add', {values})")


@pytest.mark.parametrize(
    ("columns", "values"),
    [("finished_at", f"'{FAR}'"), ("lease_owner", "'eve'")],
)
def test_a_fresh_job_has_no_owner_and_no_end(store: SqlStore, by_hand: ByHand, columns: str, values: str) -> None:
    enqueue(store)
    with by_hand.refused():
        by_hand(f"INSERT INTO holdfast_jobs (task, {columns}) VALUES ('add', {values})")


@pytest.mark.parametrize(
    "values",
    ["('')", "('add', 101)", "('add', -101)"],
)
def test_the_checks_of_the_table_hold(store: SqlStore, by_hand: ByHand, values: str) -> None:
    enqueue(store)
    columns = "(task)" if values == "('')" else "(task, priority)"
    with by_hand.refused("holdfast_jobs_"):
        by_hand(f"INSERT INTO holdfast_jobs {columns} VALUES {values}")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("priority = 101", "priority"),
        ("task = ''", "names"),
        ("queue = ''", "names"),
        ("max_attempts = 0", "budgets"),
        ("lease_seconds = 0", "budgets"),
        ("timeout_seconds = -1", "timeout"),
        ("run_after = '9999-12-31T23:59:59.9999999Z'", "times"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_the_name_of_its_rule(
    store: SqlStore, by_hand: ByHand, change: str, rule: str
) -> None:
    enqueue(store)
    enqueue(store)
    if "9999" in change and by_hand.is_postgres:
        change = "run_after = 'infinity'"
    with by_hand.refused("holdfast" if "9999" in change else f"holdfast_jobs_{rule}"):
        by_hand(f"UPDATE holdfast_jobs SET {change}")
    column, value = change.split(" = ")
    columns, values = ("task", value) if column == "task" else (f"task, {column}", f"'add', {value}")
    with by_hand.refused("holdfast"):
        by_hand(f"INSERT INTO holdfast_jobs ({columns}) VALUES ({values})")


@on_postgres
def test_a_rule_that_is_broken_is_named_to_programs_too(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    with pytest.raises(IntegrityError) as refused:
        by_hand("UPDATE holdfast_jobs SET priority = -101")
    said = refused.value.orig.diag  # type: ignore[union-attr]
    assert (said.sqlstate, said.table_name, said.constraint_name) == (
        "23514",
        "holdfast_jobs",
        "holdfast_jobs_priority",
    )
    assert "priority BETWEEN -100 AND 100" in said.message_primary


def test_a_payload_is_not_turned_into_something_else(store: SqlStore, by_hand: ByHand) -> None:
    enqueue(store)
    for payload in ("[1]", "null", '"text"'):
        with by_hand.refused():
            by_hand("UPDATE holdfast_jobs SET payload = :payload", payload=payload)


def test_a_raw_insert_makes_valid_jobs(store: SqlStore, by_hand: ByHand) -> None:
    series = "generate_series(1, 100) AS n" if by_hand.is_postgres else "json_each(:numbers)"
    number = "n" if by_hand.is_postgres else "value"
    build = "json_build_object" if by_hand.is_postgres else "json_object"
    numbers = {} if by_hand.is_postgres else {"numbers": str(list(range(1, 101)))}
    by_hand(
        f"INSERT INTO holdfast_jobs (task, payload) SELECT 'add', {build}('number', {number}) FROM {series}", **numbers
    )
    claims = store.claim("ann", 1_000)
    assert sorted(claimed.payload["number"] for claimed in claims) == list(range(1, 101))
    for claimed in claims[:5]:
        assert history(store, claimed.job_id) == ["enqueued", "claimed"]
        assert claimed.job_id[14] == "7", "a UUIDv7 like any other"
        assert settle_well(store, claimed, Succeeded()).state is State.SUCCEEDED
    assert by_hand.count("holdfast_events", "event = 'enqueued' AND seq = 1 AND attempt = 0") == 100


def test_the_ids_of_raw_inserts_sort_among_the_others(store: SqlStore, by_hand: ByHand) -> None:
    stamps = []
    for _ in range(2):
        stamps.append(new_ids(1)[0][:13])
        by_hand("INSERT INTO holdfast_jobs (task) VALUES ('raw')")
    stamps.append(new_ids(1)[0][:13])
    second, first = (job.id[:13] for job in store.jobs().items)
    assert stamps[0] <= first <= stamps[1] <= second <= stamps[2], "to the millisecond"


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.RETRYABLE])
def test_a_job_that_is_not_finished_is_not_deleted(store: SqlStore, by_hand: ByHand, state: State) -> None:
    job_in(store, state)
    with by_hand.refused("only a finished job is deleted"):
        by_hand("DELETE FROM holdfast_jobs")


@pytest.mark.parametrize("state", TERMINAL)
def test_a_finished_job_is_deleted_and_leaves_its_last_row(store: SqlStore, by_hand: ByHand, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    by_hand("DELETE FROM holdfast_jobs")
    event = store.events(job_id)[-1]
    assert (event.event, event.from_state, event.to_state) == ("pruned", str(state), None)
    assert (event.seq, event.attempt) == (before.seq + 1, before.attempt)
    assert event.at >= before.updated_at


@on_postgres
def test_the_jobs_cannot_be_truncated(store: SqlStore, by_hand: ByHand) -> None:
    job_in(store, State.SUCCEEDED)
    with by_hand.refused("TRUNCATE of holdfast_jobs is refused"):
        by_hand("TRUNCATE holdfast_jobs")


def test_an_id_does_not_live_twice(store: SqlStore, by_hand: ByHand) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    by_hand("DELETE FROM holdfast_jobs")
    before = by_hand.everything()
    with pytest.raises(IntegrityError):
        by_hand("INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'add')", id=job_id)
    assert by_hand.everything() == before


# SQLite's own ways around a trigger


@on_sqlite
@pytest.mark.parametrize("state", State)
def test_replacing_a_job_by_its_id_is_refused(store: SqlStore, by_hand: ByHand, state: State) -> None:
    job_id = job_in(store, state)
    for verb in ("INSERT OR REPLACE", "REPLACE"):
        with by_hand.refused():
            by_hand(f"{verb} INTO holdfast_jobs (id, task) VALUES ('{job_id}', 'add')")


@on_sqlite
@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.RETRYABLE])
def test_replacing_a_job_by_its_unique_key_loses_no_job(store: SqlStore, by_hand: ByHand, state: State) -> None:
    """A REPLACE deletes the row in its way without a trigger. An accepted job is never lost."""
    job_id = job_in(store, state, unique_key="k")
    enqueue(store, "other", unique_key="k")
    for statement in (
        "INSERT OR REPLACE INTO holdfast_jobs (task, unique_key) VALUES ('add', 'k')",
        "UPDATE OR REPLACE holdfast_jobs SET task = 'add' WHERE task = 'other'",
    ):
        try:
            by_hand(statement)
        except IntegrityError:
            continue
        assert store.job(job_id).state is state


@on_sqlite
@pytest.mark.parametrize("alias", ["rowid", "oid", "_rowid_"])
@pytest.mark.parametrize("state", State)
def test_replacing_a_job_by_its_rowid_is_refused(store: SqlStore, by_hand: ByHand, state: State, alias: str) -> None:
    """The rowid has no name in the schema, and is a key like any other to an OR REPLACE."""
    job_id = job_in(store, state)
    other = enqueue(store, "other")
    place = f"(SELECT rowid FROM holdfast_jobs WHERE id = '{job_id}')"
    for statement in (
        f"INSERT OR REPLACE INTO holdfast_jobs ({alias}, task) VALUES ({place}, 'add')",
        f"UPDATE OR REPLACE holdfast_jobs SET {alias} = {place} WHERE id = '{other}'",
        f"UPDATE OR REPLACE holdfast_jobs SET {alias} = {place}, priority = 2 WHERE id = '{other}'",
        f"UPDATE holdfast_jobs SET {alias} = 1000 WHERE id = '{other}'",
    ):
        with by_hand.refused():
            by_hand(statement)
    by_hand(f"UPDATE OR REPLACE holdfast_jobs SET {alias} = {place}, state = 'cancelled' WHERE id = '{other}'")
    assert (store.job(job_id).state, store.job(other).state) == (state, State.CANCELLED)


@on_sqlite
@pytest.mark.parametrize("column", ["state", "seq", "attempt", "failures", "transition", "updated_at"])
def test_a_null_does_not_slip_past_the_guard(store: SqlStore, by_hand: ByHand, column: str) -> None:
    """An OR REPLACE puts a column's default in the place of a null, after the triggers have looked."""
    job_in(store, State.FAILED)
    with by_hand.refused():
        by_hand(f"UPDATE OR REPLACE holdfast_jobs SET {column} = NULL")


@on_sqlite
def test_ignoring_a_conflict_is_no_way_around_the_guard(store: SqlStore, by_hand: ByHand) -> None:
    job_in(store, State.SUCCEEDED)
    with by_hand.refused("lifecycle"):
        by_hand("UPDATE OR IGNORE holdfast_jobs SET state = 'pending'")


# SQLite's columns take any kind of value, Postgres's do not
WRONG_KINDS = {
    "a time as SQLite writes it": "run_after = datetime('now', '+1 hour')",  # as text it is before any of today's
    "a time in words": "run_after = 'tomorrow'",
    "a time as a number": "run_after = 1.7e9",
    "a number in words": "max_attempts = 'many'",
    "another number in words": "max_crashes = 'some'",
    "a duration in words": "lease_seconds = 'long'",
    "a time limit in words": "timeout_seconds = 'none'",
    "a name that is no text": "queue = x'00ff'",
    "a source that is no text": "source = x'00ff'",
}


@on_sqlite
@pytest.mark.parametrize("change", WRONG_KINDS.values(), ids=WRONG_KINDS.keys())
def test_a_value_of_the_wrong_kind_is_refused(store: SqlStore, by_hand: ByHand, change: str) -> None:
    """Each of these, once stored, stops a claim, the reaper or a listing for all jobs, or runs a job too early."""
    enqueue(store)
    start(store)
    with by_hand.refused():
        by_hand(f"UPDATE holdfast_jobs SET {change}")
    column, _, value = change.partition(" = ")
    with by_hand.refused():
        by_hand(f"INSERT INTO holdfast_jobs (task, {column}) VALUES ('add', {value})")


@on_sqlite
def test_a_time_in_the_store_s_own_format_is_taken(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    job_id = enqueue(store)
    by_hand("UPDATE holdfast_jobs SET run_after = strftime('%Y-%m-%dT%H:%M:%f', 'now', '+1 hour') || '000Z'")
    assert claim_ids(store) == []
    clock.move(2 * 3_600)
    assert claim_ids(store) == [job_id]


# The engine and the hand together

ODD_VALUES = [
    "run_after = 'infinity'",
    "run_after = '-infinity'",
    "run_after = '12000-01-01'",
    "run_after = '0044-03-15 BC'",
    "run_after = 'tomorrow'",
    "cancel_requested_at = 'infinity'",
    "lease_seconds = 'Infinity'",
    "lease_seconds = 'NaN'",
    "lease_seconds = 'long'",
    "lease_seconds = 1e300",
    "lease_seconds = 1e12",
    "timeout_seconds = 'NaN'",
    "max_attempts = 'many'",
    "max_attempts = 2147483647",
    "max_crashes = 'some'",
    'retry = \'{"base": 1e999, "jitter": 5}\'',
    "retry = '\"often\"'",
    'payload = \'{"a": "\\u0000", "b": 1e999}\'',
    "progress = '\"\\ud800\"'",
    "source = x'6162'",
]


@pytest.mark.parametrize("change", ODD_VALUES)
def test_whatever_is_typed_into_a_job_it_does_not_stop_the_others(
    store: SqlStore, by_hand: ByHand, clock: Clock, change: str
) -> None:
    """Refused or taken: listings can be read, neighbours are claimed and reach their worker, and the reaper reaps."""
    odd, lost = start(store, "odd"), start(store)
    enqueue(store, "odd", priority=100)
    plain = enqueue(store)
    with suppress(DBAPIError):
        by_hand(f"UPDATE holdfast_jobs SET {change} WHERE task = 'odd'")
    assert plain in claim_ids(store)
    assert len(store.jobs().items) == 4
    assert [queue.name for queue in store.queues()] == ["default"]
    assert settle(store, odd, BROKEN).status is Status.APPLIED
    clock.move(61)
    assert store.stuck() == []
    assert {lost.job_id, plain} <= {settled.job_id for settled in reap(store).settled}
    assert len(store.jobs().items) == 4


@on_postgres
def test_upserts_and_merges_leave_their_audit_rows(store: SqlStore, by_hand: ByHand) -> None:
    first, second = enqueue(store), enqueue(store)
    by_hand(
        "INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'add') ON CONFLICT (id) DO UPDATE SET state = 'cancelled'",
        id=first,
    )
    assert history(store, first) == ["enqueued", "cancelled"]
    by_hand(
        "WITH again AS (UPDATE holdfast_jobs SET state = 'pending' WHERE id = :id RETURNING id)"
        " INSERT INTO holdfast_jobs (task) SELECT 'more' FROM again",
        id=first,
    )
    assert history(store, first) == ["enqueued", "cancelled", "requeued"]
    assert len(store.jobs(task="more").items) == 1
    [(version,)] = by_hand("SELECT current_setting('server_version_num')")
    if int(version) >= 150_000:
        merge = f"MERGE INTO holdfast_jobs j USING (SELECT uuid '{second}' AS id) s ON j.id = s.id WHEN MATCHED THEN"
        by_hand(f"{merge} UPDATE SET state = 'cancelled'")
        by_hand(f"{merge} DELETE")
        assert history(store, second) == ["enqueued", "cancelled", "pruned"]


def test_work_goes_on_around_hand_typed_updates(store: SqlStore, by_hand: ByHand) -> None:
    ids = [enqueue(store) for _ in range(6)]
    by_hand(f"UPDATE holdfast_jobs SET state = 'cancelled' WHERE id = '{ids[0]}'")
    by_hand(f"UPDATE holdfast_jobs SET priority = 50 WHERE id = '{ids[5]}'")
    by_hand(f"UPDATE holdfast_jobs SET state = 'running', {LEASE} WHERE id = '{ids[1]}'")
    assert claim_ids(store) == [ids[5], *ids[2:5]]
    by_hand(f"UPDATE holdfast_jobs SET state = 'pending' WHERE id = '{ids[0]}'")
    assert claim_ids(store) == [ids[0]]
    assert store.enqueue(new()).created


# Limits: one row of nonsense would stop the claims and the outcomes of all

A_TIME_OF_SQLITE = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+1 hour')"
NO_LIMITS = (
    "burst = 0",
    "burst = 1000001",
    "max_concurrent = -1",
    "max_concurrent = 1000001",
    "rate_limit_per_minute = 0",
    "rate_limit_per_minute = 1e300",
    "failure_streak = -3",
    "breaker_threshold = 0",
    "breaker_threshold = 1000001",
    "breaker_pause_seconds = 0",
    "breaker_pause_seconds = -5",
    "breaker_pause_seconds = 1e15",
    "bucket_level = 1e300",
    "bucket_level = -1",
    "name = ''",
    "paused_by = 'me'",
    "breaker_only = '\"Timeout\"'",
    "breaker_ignores = '{}'",
    "declared = '[1]'",
)
NO_LIMITS_OF_POSTGRES = (
    *(f"{column} = '{time}'" for column in ("paused_until", "bucket_at") for time in ("infinity", "-infinity")),
    "paused_until = '20000-01-01'",
    "paused_until = '9999-12-31 23:00:00Z'",
    "last_success_at = 'infinity'",
    "rate_limit_per_minute = 'NaN'",
    "rate_limit_per_minute = 'Infinity'",
    "breaker_pause_seconds = 'NaN'",
    "breaker_pause_seconds = 'Infinity'",
    "bucket_level = 'NaN'",
)
NO_LIMITS_OF_SQLITE = (
    "paused_until = datetime('now', '+1 hour')",
    "paused_until = CURRENT_TIMESTAMP",
    "paused_until = '2030-01-01'",
    "paused_until = '2030-02-31T00:00:00.000000Z'",
    "paused_until = '9999-12-31T23:00:00.000000Z'",
    "paused_until = '2030-01-31T24:00:00.000000Z'",
    "paused_until = '2030-01-31T23:60:00.000000Z'",
    "paused_until = 'tomorrow'",
    "paused_until = ''",
    "paused_until = 7",
    "last_failure_at = CURRENT_TIMESTAMP",
    "bucket_at = 'x'",
    "rate_limit_per_minute = '100/m'",
    "max_concurrent = 'many'",
    "max_concurrent = 1.5",
    "burst = 'x'",
    "breaker_threshold = x'01'",
    "breaker_pause_seconds = '5m'",
    "enabled = 'no'",
    "enabled = 2",
    "breaker_counts_permanent = 'true'",
    "breaker_only = 'Timeout'",
)


def test_nonsense_in_a_source_is_refused(store: SqlStore, by_hand: ByHand) -> None:
    by_hand("INSERT INTO holdfast_sources (name) VALUES ('shop')")
    for change in (*NO_LIMITS, *(NO_LIMITS_OF_POSTGRES if by_hand.is_postgres else NO_LIMITS_OF_SQLITE)):
        with by_hand.refused("holdfast"):
            by_hand(f"UPDATE holdfast_sources SET {change}")
    with by_hand.refused("holdfast"):
        by_hand("INSERT INTO holdfast_sources (name, breaker_threshold) VALUES ('bank', 0)")
    settle_well(store, start(store, source="shop"), BROKEN)
    assert store.source("shop").failure_streak == 1


def test_sense_in_a_source_is_taken(store: SqlStore, by_hand: ByHand) -> None:
    soon = "now() + interval '1 hour'" if by_hand.is_postgres else A_TIME_OF_SQLITE
    by_hand(
        "INSERT INTO holdfast_sources (name, rate_limit_per_minute, max_concurrent, breaker_only, paused_until,"
        " enabled)"
        f" VALUES ('shop', 100, 0, '[\"Timeout\"]', {soon}, false)"
    )
    by_hand("UPDATE holdfast_sources SET rate_limit_per_minute = 0.5, paused_until = NULL, burst = 3, enabled = true")
    source = store.source("shop")
    assert (source.rate_limit_per_minute, source.max_concurrent, source.burst) == (0.5, 0, 3)
    assert (source.paused_until, source.enabled, source.breaker_only) == (None, True, ("Timeout",))


@on_sqlite
def test_who_types_a_time_in_another_form_is_told_how(store: SqlStore, by_hand: ByHand) -> None:
    store.set_source("shop")
    with pytest.raises(IntegrityError) as refused:
        by_hand("UPDATE holdfast_sources SET paused_until = datetime('now', '+1 hour')")
    assert A_TIME_OF_SQLITE in str(refused.value.orig)
    by_hand("UPDATE holdfast_sources SET paused_until = '2030-12-31T23:59:59.999999Z'")
    by_hand(f"UPDATE holdfast_sources SET paused_until = {A_TIME_OF_SQLITE}")
    assert store.source("shop").paused_until is not None


@on_sqlite
def test_a_queue_takes_a_number(store: SqlStore, by_hand: ByHand) -> None:
    with by_hand.refused("max_running"):
        by_hand("INSERT INTO holdfast_queues (name, max_running) VALUES ('slow', 'many')")
    store.limit_queue("slow", 2)
    with by_hand.refused("max_running"):
        by_hand("UPDATE holdfast_queues SET max_running = 'many'")
    by_hand("UPDATE holdfast_queues SET max_running = 3")
