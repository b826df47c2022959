"""The loop's waiting: for the bell, for a time, for a change of a file."""

from collections.abc import Iterator
from time import monotonic

import pytest

from holdfast.worker.bell import Bell
from holdfast.worker.waiting import Waiting


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell()
    yield bell
    bell.close()


@pytest.fixture
def waiting(bell: Bell) -> Iterator[Waiting]:
    waiting = Waiting(bell, monotonic)
    yield waiting
    waiting.close()


def test_a_change_ends_the_wait_at_the_look_that_sees_it(waiting: Waiting) -> None:
    looks = iter([False, False, True])
    waiting.has_changed = lambda: next(looks)
    assert waiting.wait_or_change(60.0) == ([], True)
    assert list(looks) == []


def test_who_rings_is_heard_before_anything_is_looked_at(waiting: Waiting, bell: Bell) -> None:
    waiting.has_changed = lambda: pytest.fail("there was no need to look")
    bell.ring()
    [(key, _events)], has_changed = waiting.wait_or_change(60.0)
    assert (key.fileobj, has_changed) == (bell, False)


@pytest.mark.parametrize("seconds", [0.0, 0.12])
def test_when_the_time_has_come_it_has_looked_once_more(waiting: Waiting, seconds: float) -> None:
    looks = iter([False] * 100)
    waiting.has_changed = lambda: next(looks)
    assert waiting.wait_or_change(seconds) == ([], False)
    assert len(list(looks)) < 100


def test_without_a_file_it_is_a_plain_wait(waiting: Waiting) -> None:
    assert waiting.wait_or_change(0.0) == ([], False)
