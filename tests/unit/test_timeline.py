"""A job's life over time: nothing is left out, nothing overlaps, and long waits do not hide the attempts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.job import Attempt, AuditEvent
from holdfast.domain.lifecycle import MOVES, Event
from holdfast.domain.timeline import LETTERS, REFUSED, Timeline, lay_out
from holdfast.domain.views import Refusal

JOB = "01890000-0000-7000-8000-000000000001"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOVE = {move.event: move for move in MOVES}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def life(*steps: tuple[float, str, str | None]) -> list[AuditEvent]:
    """A history from what happened when, and to whom; the states follow from the lifecycle."""
    events: list[AuditEvent] = []
    state: str | None = None
    attempt = 0
    for seq, (at, name, worker) in enumerate(steps, 1):
        attempt += name == Event.CLAIMED
        target = MOVE[Event(name)].target
        events.append(AuditEvent(JOB, seq, after(at), name, state, target, attempt, worker, None, None))
        state = target
    return events


def drawn(events: list[AuditEvent], now: float = 0.0, refusals: tuple[Refusal, ...] = ()) -> Timeline:
    timeline = lay_out(events, (), refusals, after(now))
    assert timeline is not None
    return timeline


def refusal(worker: str, first: float, last: float, count: int = 1) -> Refusal:
    return Refusal(JOB, 1, "complete", "lease_lost", worker, after(first), after(last), count)


LOST_AND_DONE = life(
    (0, "enqueued", None), (1, "claimed", "ada"), (11, "lease_lost", "reaper"), (12, "claimed", "bob"),
    (21, "succeeded", "bob"),
)  # fmt: skip


@st.composite
def lives(draw: st.DrawFn) -> list[AuditEvent]:
    """Any way through the lifecycle, with times between its steps from nothing to a month."""
    gaps = st.one_of(st.just(0.0), st.floats(0.000_01, 100.0), st.floats(1_000.0, 2_600_000.0))
    events: list[AuditEvent] = []
    state: str | None = None
    attempt, at = 0, 0.0
    for seq in range(1, draw(st.integers(1, 15)) + 1):
        move = draw(st.sampled_from([move for move in MOVES if move.source == state]))
        attempt += move.event is Event.CLAIMED
        worker = draw(st.sampled_from(["ada", "bob", None]))
        detail = draw(st.sampled_from([None, {"delay_seconds": 30}]))
        events.append(AuditEvent(JOB, seq, after(at), move.event, state, move.target, attempt, worker, None, detail))
        state = move.target
        at += draw(gaps)
        if state is None:
            break
    return events


@st.composite
def refused(draw: st.DrawFn) -> Refusal:
    first = draw(st.floats(-10.0, 10_000.0))
    return refusal(draw(st.sampled_from(["ada", "zombie"])), first, first + draw(st.sampled_from([0.0, 5.0, 9_999.0])))


@given(lives(), st.lists(refused(), max_size=3), st.floats(-5.0, 1e7))
def test_every_event_and_every_refusal_is_on_it_in_order_and_in_bounds(
    events: list[AuditEvent], refusals: list[Refusal], now: float
) -> None:
    timeline = lay_out(events, (), refusals, after(now))

    assert timeline is not None
    told = [mark for mark in timeline.all_marks if mark.seq is not None]
    assert [(mark.seq, mark.kind, mark.at) for mark in told] == [(e.seq, e.event, e.at) for e in events]
    no = sorted(mark.at for mark in timeline.all_marks if mark.kind == REFUSED)
    assert no == sorted(at for r in refusals for at in {r.first_at, r.last_at})
    places = [mark.place for mark in told]
    assert places == sorted(places)
    assert all(0.0 <= mark.place <= 1.0 for mark in timeline.all_marks)


@given(lives(), st.floats(0.0, 1e7))
def test_attempts_of_one_job_never_overlap_and_are_as_many_as_it_was_claimed(
    events: list[AuditEvent], now: float
) -> None:
    timeline = drawn(events, now)

    assert [s.attempt for s in timeline.segments] == [e.attempt for e in events if e.event == Event.CLAIMED]
    for one, next_one in pairwise(timeline.segments):
        assert one.end is not None
        assert one.end <= next_one.begin
        assert one.stop <= next_one.start
    assert [s.running for s in timeline.segments if s.running] == [True] * (events[-1].to_state == "running")
    assert all(segment.worker == lane.worker for lane in timeline.lanes for segment in lane.segments)


@given(lives(), st.floats(0.0, 1e7))
def test_attempts_and_waits_together_cover_the_whole_life(events: list[AuditEvent], now: float) -> None:
    timeline = drawn(events, now)

    runs = [(segment.start, segment.stop) for segment in timeline.segments]
    parts = sorted(runs + [(wait.start, wait.stop) for wait in timeline.waits])
    assert all(stop == pytest.approx(start) for (_start, stop), (start, _stop) in pairwise(parts))
    if timeline.axis.begin < timeline.axis.end:
        assert (parts[0][0], parts[-1][1]) == (0.0, 1.0)


@given(lives(), st.floats(0.0, 1e7))
def test_the_axis_is_without_gaps_and_the_attempts_have_at_least_a_third_of_it(
    events: list[AuditEvent], now: float
) -> None:
    axis = drawn(events, now).axis

    assert (axis.stretches[0].start, axis.stretches[-1].stop) == (0.0, 1.0)
    for one, next_one in pairwise(axis.stretches):
        assert (one.end, one.stop) == (next_one.begin, next_one.start)
    if axis.breaks:
        runs = sum(segment.stop - segment.start for segment in drawn(events, now).segments)
        assert runs >= 1 / 3 - 1e-6
    moments = [axis.moment(part / 20) for part in range(21)]
    assert (moments, moments[0], moments[-1]) == (sorted(moments), axis.begin, axis.end)


@given(lives(), st.floats(0.01, 0.5))
def test_ticks_keep_their_distance_and_include_both_ends(events: list[AuditEvent], gap: float) -> None:
    ticks = drawn(events, 50.0).axis.ticks(gap)

    assert all(next_one.place - one.place >= gap for one, next_one in pairwise(ticks))
    assert (ticks[0].place, ticks[-1].place) == (0.0, 1.0)


def test_each_attempt_is_on_the_lane_of_the_worker_that_held_it_with_its_end_beside_it() -> None:
    timeline = drawn(LOST_AND_DONE)

    assert [lane.worker for lane in timeline.lanes] == ["ada", "bob"], "the reaper held nothing"
    ada, bob = timeline.lanes
    assert [(s.attempt, s.outcome) for s in ada.segments] == [(1, "lease_lost")]
    assert [mark.kind for mark in ada.marks] == ["claimed", "lease_lost"]
    assert [(s.attempt, s.outcome) for s in bob.segments] == [(2, "succeeded")]
    assert [mark.kind for mark in timeline.marks] == ["enqueued"]
    assert [(w.since, w.state) for w in timeline.waits] == [("enqueued", "pending"), ("lease_lost", "pending")]


def test_places_are_to_scale_while_no_wait_is_long() -> None:
    timeline = drawn(LOST_AND_DONE)

    assert timeline.axis.breaks == ()
    first, second = timeline.segments
    assert (first.start, first.stop) == pytest.approx((1 / 21, 11 / 21))
    assert (second.start, second.stop) == pytest.approx((12 / 21, 1.0))


def test_a_long_wait_between_attempts_is_broken_and_the_attempts_keep_their_room() -> None:
    timeline = drawn(
        life(
            (0, "enqueued", None), (0, "claimed", "ada"), (10, "retry_scheduled", "ada"), (7210, "claimed", "ada"),
            (7220, "succeeded", "ada"),
        )
    )  # fmt: skip

    [gap] = timeline.axis.breaks
    assert (gap.begin, gap.end) == (after(10), after(7210))
    assert [segment.stop - segment.start for segment in timeline.segments] == pytest.approx([0.25, 0.25])
    assert gap.stop - gap.start == pytest.approx(0.5)


def test_a_running_attempt_is_open_and_reaches_to_now() -> None:
    timeline = drawn(life((0, "enqueued", None), (5, "claimed", "ada")), now=10)

    [segment] = timeline.segments
    assert (segment.running, segment.end, segment.outcome, segment.stop) == (True, None, None, 1.0)
    assert segment.start == pytest.approx(0.5)


def test_a_job_that_is_over_does_not_go_on_until_now() -> None:
    assert drawn(LOST_AND_DONE, now=1e6).axis.end == after(21)


def test_what_a_zombie_is_refused_is_on_its_own_lane_also_after_the_end() -> None:
    timeline = drawn(LOST_AND_DONE, refusals=(refusal("ada", 15, 30, count=4), refusal("mallory", 16, 16)))

    assert [lane.worker for lane in timeline.lanes] == ["ada", "bob", "mallory"]
    ada, _bob, mallory = timeline.lanes
    assert [mark.kind for mark in ada.marks] == ["claimed", "lease_lost", REFUSED, REFUSED]
    assert ada.marks[-1].place == 1.0
    assert ada.marks[-1].refusal is not None
    assert ada.marks[-1].refusal.count == 4
    assert (len(mallory.marks), mallory.segments) == (1, ())
    assert timeline.waits[-1].over


def test_cancel_asked_while_it_runs_is_on_the_attempt_and_before_it_is_on_the_job() -> None:
    asked = drawn(
        life((0, "enqueued", None), (1, "claimed", "ada"), (4, "cancel_requested", "olga"), (9, "cancelled", "ada"))
    )
    assert [mark.kind for mark in asked.lanes[0].marks] == ["claimed", "cancel_requested", "cancelled"]
    assert len(asked.lanes) == 1

    waiting = drawn(life((0, "enqueued", None), (4, "cancelled", "olga")))
    assert (waiting.lanes, [mark.kind for mark in waiting.marks]) == ((), ["enqueued", "cancelled"])


def test_a_wait_says_when_the_job_is_due_again() -> None:
    events = life((0, "enqueued", None), (1, "claimed", "ada"), (2, "snoozed", "ada"))
    told = [*events[:2], replace(events[2], detail={"reason": "later", "delay_seconds": 3})]

    due = drawn(told, now=8).waits[-1].due
    assert due is not None
    assert due.at == after(5)
    assert drawn(told, now=4).waits[-1].due is None, "it is beyond the edge"


def test_what_an_attempt_cost_is_with_its_bar() -> None:
    facts = Attempt(JOB, 2, "bob", after(12), after(21), "succeeded", None, None, None, 9000, 10, 2048)
    timeline = lay_out(LOST_AND_DONE, [facts])

    assert timeline is not None
    assert [segment.facts for segment in timeline.segments] == [None, facts]


def test_of_a_job_of_very_many_attempts_the_last_ones_can_be_asked_for() -> None:
    steps: list[tuple[float, str, str | None]] = [(0, "enqueued", None)]
    for turn in range(100):
        steps += [(turn * 10 + 1, "claimed", "ada"), (turn * 10 + 2, "snoozed", "ada")]
    timeline = lay_out(life(*steps), (), [refusal("zombie", 3, 995)], after(1000), most_attempts=10)

    assert timeline is not None
    assert ([s.attempt for s in timeline.segments], timeline.left_out) == (list(range(91, 101)), 90)
    assert timeline.axis.begin == after(901)
    assert [mark.at for mark in timeline.all_marks if mark.kind == REFUSED] == [after(995)]


def test_a_log_that_was_tampered_with_is_drawn_as_well_as_it_can_be() -> None:
    backwards = life((10, "enqueued", None), (5, "claimed", "ada"), (20, "succeeded", "ada"))
    assert [mark.place for mark in drawn(backwards).all_marks] == [0.0, 0.0, 1.0]

    without_end = [event for event in LOST_AND_DONE if event.event != "lease_lost"]
    ada, bob = drawn(without_end).segments
    assert (ada.end, ada.outcome, bob.outcome) == (after(12), None, "succeeded")


def test_of_nothing_there_is_nothing_to_draw() -> None:
    assert lay_out([]) is None


def test_every_event_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == {*Event, REFUSED}
    assert len(set(LETTERS.values())) == len(LETTERS)
