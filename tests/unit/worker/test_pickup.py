"""How much to claim of what."""

import pytest

from holdfast.domain.manifest import Kind
from holdfast.worker.pace import MOST_PER_RUNNER, MOST_PER_SLOT, Pace
from holdfast.worker.pickup import Ask, Room, choose

SLOW = Room(["a", "b"], slots=2, quick=[], ahead=0)
MANY = Room(["c"], slots=64, quick=[], ahead=0)
FULL = Room(["a", "b"], slots=0, quick=[], ahead=0)


def test_with_nothing_to_do_all_tasks_are_asked_for_in_one_query() -> None:
    assert choose({Kind.SYNC: SLOW, Kind.ASYNC: MANY}, rush=False) == Ask(("a", "b", "c"), 2)


def test_in_a_rush_the_kind_with_most_room_is_filled() -> None:
    assert choose({Kind.SYNC: SLOW, Kind.ASYNC: MANY}, rush=True) == Ask(("c",), 64)


def test_a_kind_without_room_is_left_out() -> None:
    assert choose({Kind.SYNC: FULL, Kind.ASYNC: MANY}, rush=False) == Ask(("c",), 64)
    assert choose({Kind.SYNC: FULL}, rush=False) is None
    assert choose({Kind.SYNC: FULL}, rush=True) is None


@pytest.mark.parametrize(("slots", "ahead", "asked"), [(2, 128, 130), (0, 100, 100), (0, 30, 30)])
def test_quick_tasks_are_claimed_ahead_in_a_rush_only(slots: int, ahead: int, asked: int) -> None:
    room = Room(["a", "quick"], slots=slots, quick=["quick"], ahead=ahead)
    assert choose({Kind.SYNC: room}, rush=True) == Ask(("quick",), asked, ahead=True)
    without_rush = choose({Kind.SYNC: room}, rush=False)
    assert without_rush is None if slots == 0 else without_rush == Ask(("a", "quick"), slots)


def test_quick_tasks_are_claimed_in_decent_portions() -> None:
    room = Room(["quick"], slots=0, quick=["quick"], ahead=63, most=128)
    assert choose({Kind.SYNC: room}, rush=True) is None


def test_a_task_is_quick_only_once_it_has_shown_it() -> None:
    pace = Pace()
    assert pace.quick(["x"]) == []
    pace.note("x", 2.0)
    assert pace.quick(["x"]) == ["x"]
    pace.note("x", 1_000.0)
    assert pace.quick(["x"]) == []


def test_a_task_whose_runner_died_is_not_quick() -> None:
    pace = Pace()
    pace.note("x", 0.0)
    pace.forget("x")
    assert pace.quick(["x"]) == []


@pytest.mark.parametrize(
    ("duration", "slots", "ahead"), [(0.0, 1, MOST_PER_SLOT), (5.0, 1, 20), (0.0, 8, MOST_PER_RUNNER)]
)
def test_what_is_held_ahead_is_bounded(duration: float, slots: int, ahead: int) -> None:
    pace = Pace()
    pace.note("x", duration)
    assert pace.ahead(["x"], slots) == ahead
