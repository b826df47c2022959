"""Every rule of a history: what keeps it, and what breaks it and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.history import SENTENCES, HistoryChecker, HistoryRule, RowFacts, Violation
from holdfast.domain.lifecycle import MOVES, Move
from tests.verify.lives import (
    CRASH,
    FAILURE,
    JOB,
    MANUAL,
    Damage,
    Life,
    event_damage,
    extra_event,
    lost_event,
    row_damage,
    without_history,
    without_row,
)

FAILS_TWICE = ("claimed", "retry_scheduled", "claimed", "failed")
SUCCEEDS = ("claimed", "released", "claimed", "succeeded")
RUNS = ("claimed", "crashed", "claimed")


def violations(life: Life) -> tuple[Violation, ...]:
    checker = HistoryChecker(life.job_id)
    for event in life.events:
        checker.feed(event)
    return checker.finish(life.row)


def broken_rules(life: Life) -> list[str]:
    return [violation.rule for violation in violations(life)]


@pytest.mark.parametrize(
    "steps",
    [
        (),
        ("replaced", "replaced"),
        ("claimed",),
        ("claimed", "cancel_requested"),
        ("claimed", "cancel_requested", "cancelled"),
        ("claimed", "cancel_requested", "succeeded"),
        ("cancelled",),
        SUCCEEDS,
        RUNS,
        FAILS_TWICE,
        (*FAILS_TWICE, "requeued", "replaced", *FAILS_TWICE),
        ("claimed", "lease_lost", "claimed", "snoozed", "claimed", "retry_scheduled", "cancelled"),
        (*SUCCEEDS, "pruned"),
        ("cancelled", "requeued", "cancelled", "pruned"),
    ],
    ids=lambda steps: "-".join(steps) or "enqueued",
)
def test_a_legal_life_breaks_no_rule(steps: tuple[str, ...]) -> None:
    assert broken_rules(Life(*steps)) == []


BROKEN: list[tuple[str, tuple[str, ...], Damage, str]] = [
    ("the history is gone", SUCCEEDS, without_history, "no_history"),
    ("the row is gone", SUCCEEDS, without_row, "no_row"),
    ("the row of a running job is gone", RUNS, without_row, "no_row"),
    ("pruned is missing", (*SUCCEEDS, "pruned"), lost_event(6), "no_row"),
    ("an event after pruned", ("cancelled", "pruned"), extra_event("requeued", None, "pending"), "after_pruned"),
    ("the first event is missing", SUCCEEDS, lost_event(1), "gap"),
    ("an event in the middle is missing", SUCCEEDS, lost_event(3), "gap"),
    ("a charge is missing", FAILS_TWICE, lost_event(3), "gap"),
    ("the last event is missing", SUCCEEDS, lost_event(5), "gap"),
    ("a claim that still holds is missing", RUNS, lost_event(4), "gap"),
    ("an event is numbered later", SUCCEEDS, event_damage(5, seq=9), "gap"),
    ("an event has an unknown name", SUCCEEDS, event_damage(3, event="stolen"), "unknown_event"),
    ("the last event has an unknown name", SUCCEEDS, event_damage(5, event="done"), "unknown_event"),
    ("an event reaches another state", SUCCEEDS, event_damage(3, to_state="retryable"), "illegal_transition"),
    ("the last event reaches another state", SUCCEEDS, event_damage(5, to_state="failed"), "illegal_transition"),
    ("an event leaves a state it cannot", SUCCEEDS, event_damage(2, from_state="failed"), "illegal_transition"),
    ("succeeded jobs are requeued", SUCCEEDS, extra_event("requeued", "succeeded", "pending"), "illegal_transition"),
    ("a running job is pruned", ("claimed",), extra_event("pruned", "running", None), "illegal_transition"),
    ("an event leaves another state", SUCCEEDS, event_damage(4, from_state="retryable"), "broken_chain"),
    ("enqueued again", ("replaced",), event_damage(2, event="enqueued", from_state=None), "broken_chain"),
    ("claimed after the end", SUCCEEDS, extra_event("claimed", "pending", "running"), "broken_chain"),
    ("an event is early", SUCCEEDS, event_damage(3, at="2023-12-31T00:00:00.000000Z"), "time_order"),
    ("an event is late", SUCCEEDS, event_damage(3, at="2025-01-01T00:00:00.000000Z"), "time_order"),
    ("the last event is early", SUCCEEDS, event_damage(5, at="2023-12-31T00:00:00.000000Z"), "time_order"),
    (
        "claimed while another held it",
        SUCCEEDS,
        event_damage(3, event="claimed", from_state="pending", to_state="running"),
        "lease_overlap",
    ),
    (
        "claimed from running",
        SUCCEEDS,
        event_damage(3, event="claimed", from_state="running", to_state="running"),
        "lease_overlap",
    ),
    ("a second claim at the end", RUNS, extra_event("claimed", "pending", "running", attempt=3), "lease_overlap"),
    ("a claim without a lease", SUCCEEDS, event_damage(4, lease=None), "claim_without_lease"),
    ("the current claim without a lease", RUNS, event_damage(4, lease=None), "claim_without_lease"),
    ("an outcome under another lease", SUCCEEDS, event_damage(5, lease="lease-1"), "wrong_lease"),
    ("an outcome under no lease", SUCCEEDS, event_damage(5, lease=None), "wrong_lease"),
    ("an outcome of another attempt", SUCCEEDS, event_damage(5, attempt=1), "wrong_lease"),
    ("a claim of another lease", SUCCEEDS, event_damage(2, lease="forged"), "wrong_lease"),
    (
        "a cancel request under another lease",
        ("claimed", "cancel_requested", "cancelled"),
        event_damage(3, lease="forged"),
        "wrong_lease",
    ),
    ("a lease where none was held", ("replaced",), event_damage(2, lease="forged"), "wrong_lease"),
    (
        "an outcome of a job that was not running",
        ("claimed", "released", "replaced"),
        event_damage(4, event="snoozed", from_state="running"),
        "wrong_lease",
    ),
    ("a claim skips an attempt", SUCCEEDS, event_damage(2, attempt=4), "attempt_not_growing"),
    ("a claim repeats an attempt", SUCCEEDS, event_damage(4, attempt=1), "attempt_not_growing"),
    ("the current claim skips an attempt", RUNS, event_damage(4, attempt=7), "attempt_not_growing"),
    ("a requeue moves the attempt", ("cancelled", "requeued"), event_damage(3, attempt=1), "attempt_not_growing"),
    ("an enqueue with an attempt", (), event_damage(1, attempt=1), "attempt_not_growing"),
    ("two ends, as recorded by a zombie", SUCCEEDS, extra_event("failed", "running", "failed"), "two_outcomes"),
    ("two ends, one from the other", SUCCEEDS, extra_event("cancelled", "succeeded", "cancelled"), "two_outcomes"),
    (
        "two equal ends",
        ("claimed", "succeeded"),
        extra_event("succeeded", "running", "succeeded"),
        "two_outcomes",
    ),
    ("the row has another state", SUCCEEDS, row_damage(state="failed"), "fold"),
    ("the row is active again", SUCCEEDS, row_damage(state="pending"), "fold"),
    ("the row has another attempt", SUCCEEDS, row_damage(attempt=9), "fold"),
    ("the row is behind the log", SUCCEEDS, row_damage(seq=4), "fold"),
    ("the row is before a transition", SUCCEEDS, row_damage(transition="claimed"), "fold"),
    ("the row has another lease", RUNS, row_damage(lease_token="lease-1"), "fold"),
    ("the row has another owner", RUNS, row_damage(lease_owner="worker-1"), "fold"),
    ("the row is ahead of the log", SUCCEEDS, row_damage(seq=6), "gap"),
    ("a failure too many", SUCCEEDS, row_damage(failures=1), "counters"),
    ("a failure too few", FAILS_TWICE, row_damage(failures=1), "counters"),
    ("a crash for a failure", FAILS_TWICE, row_damage(failures=1, crashes=1), "counters"),
    ("a crash forgotten", RUNS, row_damage(crashes=0), "counters"),
    ("a requeue that kept the counters", (*FAILS_TWICE, "requeued"), row_damage(failures=2), "counters"),
    ("updated without a transition", SUCCEEDS, row_damage(updated_at="2024-06-01T00:00:00.000000Z"), "updated_at"),
    ("the last event is late", SUCCEEDS, event_damage(5, at="2025-01-01T00:00:00.000000Z"), "updated_at"),
    ("an end without a time", SUCCEEDS, row_damage(is_finished=False), "finished_at"),
    ("a time without an end", RUNS, row_damage(is_finished=True), "finished_at"),
    ("running without a token", RUNS, row_damage(lease_token=None), "running_without_lease"),
    ("running without an expiry", RUNS, row_damage(has_expiry=False), "running_without_lease"),
    ("a token left behind", SUCCEEDS, row_damage(lease_token="lease-2"), "lease_without_running"),
    ("an expiry left behind", SUCCEEDS, row_damage(has_expiry=True), "lease_without_running"),
    ("an owner left behind", SUCCEEDS, row_damage(lease_owner="worker-2"), "lease_without_running"),
]


@pytest.mark.parametrize(("steps", "damage", "rule"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_one_damage_breaks_exactly_its_own_rule(steps: tuple[str, ...], damage: Damage, rule: str) -> None:
    life = Life(*steps)
    damage(life)
    [violation] = violations(life)
    assert violation.rule == rule
    assert violation.job_id == JOB
    assert violation.detail


def test_every_rule_is_documented_and_tested() -> None:
    assert set(SENTENCES) == set(HistoryRule)
    alone = {HistoryRule.VANISHED}  # of what has no history left: tests/verify/test_vanished.py
    assert {rule for *_, rule in BROKEN} == {str(rule) for rule in HistoryRule if rule not in alone}


def test_a_row_that_came_back_after_pruned() -> None:
    life = Life("cancelled")
    row = life.row
    life.step("pruned")
    life.row = row
    assert broken_rules(life) == ["after_pruned"]


def test_two_damages_are_both_named() -> None:
    life = Life(*SUCCEEDS)
    event_damage(3, to_state="retryable")(life)
    row_damage(is_finished=False)(life)
    assert broken_rules(life) == ["illegal_transition", "finished_at"]


def test_a_rule_is_reported_once_per_job() -> None:
    life = Life("claimed", "succeeded")
    for name in ("failed", "cancelled", "succeeded"):
        extra_event(name, "running", name)(life)
    assert broken_rules(life).count("two_outcomes") == 1


@pytest.mark.parametrize(
    ("detail", "failures", "crashes", "fits"),
    [
        (CRASH, 0, 1, True),
        (CRASH, 1, 0, False),
        (FAILURE, 1, 0, True),
        (FAILURE, 0, 1, False),
        (MANUAL, 1, 0, True),
        (MANUAL, 0, 1, True),
        (MANUAL, 1, 1, False),
        (MANUAL, 0, 0, False),
        (None, 1, 0, True),
        ('"worker_lost"', 0, 1, True),
        ("{ no JSON", 0, 1, True),
        ('{"deep": ' + "[" * 100_000, 1, 0, True),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_a_failed_job_is_charged(detail: str | None, failures: int, crashes: int, fits: bool) -> None:
    life = Life("claimed", "failed")
    event_damage(3, detail=detail)(life)
    row_damage(failures=failures, crashes=crashes)(life)
    assert broken_rules(life) == ([] if fits else ["counters"])


def test_counters_are_known_again_after_a_requeue() -> None:
    life = Life(*FAILS_TWICE, "requeued", "claimed", "retry_scheduled")
    lost_event(3)(life)
    row_damage(failures=2)(life)
    assert broken_rules(life) == ["gap", "counters"]


# On a busy machine any single example may take long.
UNHURRIED = settings(deadline=None)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A random walk through the lifecycle."""
    life = Life()
    for _ in range(draw(st.integers(0, 25))):
        open_moves: list[Move] = [move for move in MOVES if move.source is not None and move.source == life.state]
        if not open_moves:
            break
        life.step(draw(st.sampled_from(open_moves)), crash=draw(st.booleans()))
    return life


@UNHURRIED
@given(lives())
def test_every_walk_through_the_lifecycle_is_legal(life: Life) -> None:
    assert broken_rules(life) == []


@UNHURRIED
@given(lives(), st.data())
def test_no_event_can_be_lost(life: Life, data: st.DataObject) -> None:
    seq = data.draw(st.integers(1, len(life.events)))
    lost_event(seq)(life)
    if life.row is None and not life.events:
        return
    assert broken_rules(life) != []


@UNHURRIED
@given(lives(), st.data())
def test_no_event_can_be_forged(life: Life, data: st.DataObject) -> None:
    forgery: dict[str, object] = data.draw(
        st.sampled_from(
            [
                {"from_state": "nowhere"},
                {"to_state": "nowhere"},
                {"attempt": 99},
                {"lease": "forged"},
                {"event": "forged"},
                {"seq": 99},
                {"at": ""},
            ]
        )
    )
    # An earlier first event contradicts nothing, unless it is also the last.
    first = min(2, len(life.events)) if "at" in forgery else 1
    seq = data.draw(st.integers(first, len(life.events)))
    event_damage(seq, **forgery)(life)
    life.events.sort(key=lambda event: event.seq)
    assert broken_rules(life) != []


@UNHURRIED
@given(lives(), st.sampled_from([name for name in RowFacts._fields if name != "job_id"]))
def test_no_column_of_the_row_can_be_forged(life: Life, column: str) -> None:
    if life.row is None:
        return
    value = getattr(life.row, column)
    forged: object = value + 1 if type(value) is int else not value if type(value) is bool else "forged"
    row_damage(**{column: forged})(life)
    assert broken_rules(life) != []
