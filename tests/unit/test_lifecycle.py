"""The lifecycle table is the one in the design, written out here a second time by hand."""

import pytest

from holdfast.domain.lifecycle import (
    ACTIVE,
    CLAIMABLE,
    MANUAL_EVENTS,
    MOVES,
    OUTCOMES,
    RULES,
    TERMINAL,
    Charge,
    Event,
    State,
    find_move,
)

# event, from, to, charges
DESIGNED = """
    enqueued          ∅          pending    nothing
    replaced          pending    pending    nothing
    claimed           pending    running    attempt
    claimed           retryable  running    attempt
    succeeded         running    succeeded  nothing
    retry_scheduled   running    retryable  failure
    crashed           running    retryable  crash
    lease_lost        running    pending    crash
    failed            running    failed     failure_or_crash
    released          running    pending    nothing
    snoozed           running    pending    nothing
    cancel_requested  running    running    nothing
    cancelled         pending    cancelled  nothing
    cancelled         retryable  cancelled  nothing
    cancelled         running    cancelled  nothing
    requeued          failed     pending    reset
    requeued          cancelled  pending    reset
    pruned            succeeded  ∅          nothing
    pruned            failed     ∅          nothing
    pruned            cancelled  ∅          nothing
"""


def state(word: str) -> State | None:
    return None if word == "∅" else State(word)


ROWS = [row.split() for row in DESIGNED.strip().splitlines()]
TABLE = {(event, state(source), state(target)): Charge[charge.upper()] for event, source, target, charge in ROWS}


def test_the_table_is_the_designed_one() -> None:
    assert {(move.event, move.source, move.target): move.charge for move in MOVES} == TABLE
    assert len(MOVES) == len(TABLE), "no arrow is there twice"


def test_an_arrow_is_found_if_and_only_if_the_table_has_it() -> None:
    places = [None, *State]
    found = {
        (event, source, target)
        for event in Event
        for source in places
        for target in places
        if find_move(event, source, target) is not None
    }
    assert found == set(TABLE)


@pytest.mark.parametrize("event", ["", "none", "stolen", "CLAIMED"])
def test_an_event_that_is_none_has_no_arrow(event: str) -> None:
    assert find_move(event, "pending", "running") is None


def test_the_six_states_and_their_groups() -> None:
    assert {str(state) for state in State} == {"pending", "running", "retryable", "succeeded", "failed", "cancelled"}
    assert set(CLAIMABLE) == {State.PENDING, State.RETRYABLE}
    assert set(ACTIVE) == {State.PENDING, State.RUNNING, State.RETRYABLE}
    assert set(TERMINAL) == set(State) - set(ACTIVE)


def test_what_has_ended_leaves_only_by_a_requeue_or_by_pruning() -> None:
    leaving = {(move.event, move.source) for move in MOVES if move.source in TERMINAL}
    assert leaving == {
        (Event.REQUEUED, State.FAILED),
        (Event.REQUEUED, State.CANCELLED),
        (Event.PRUNED, State.SUCCEEDED),
        (Event.PRUNED, State.FAILED),
        (Event.PRUNED, State.CANCELLED),
    }


def test_only_a_claim_starts_a_lease_and_raises_the_attempt() -> None:
    for move in MOVES:
        starts = move.target is State.RUNNING and move.source is not State.RUNNING
        assert starts == (move.event is Event.CLAIMED) == (move.charge is Charge.ATTEMPT)


def test_the_events_that_end_a_lease() -> None:
    assert {str(event) for event in OUTCOMES} == {
        "succeeded",
        "retry_scheduled",
        "crashed",
        "lease_lost",
        "failed",
        "released",
        "snoozed",
        "cancelled",
    }


def test_every_event_has_a_rule_and_every_rule_a_guard() -> None:
    assert {rule.event for rule in RULES} == set(Event)
    assert all(rule.guard for rule in RULES)


def test_what_a_hand_typed_change_of_state_means_is_always_an_arrow() -> None:
    for (source, target), event in MANUAL_EVENTS.items():
        assert find_move(event, source, target) is not None


def test_every_change_of_state_that_has_an_arrow_can_be_typed_by_hand() -> None:
    joined = {(move.source, move.target) for move in MOVES if move.source and move.target}
    assert set(MANUAL_EVENTS) == {(source, target) for source, target in joined if source is not target}


def test_a_hand_typed_change_charges_no_crash() -> None:
    """Where the states leave a choice, the meaning that blames nobody's worker."""
    meant = [find_move(event, source, target) for (source, target), event in MANUAL_EVENTS.items()]
    assert Charge.CRASH not in {move.charge for move in meant if move is not None}
