"""A part of the view that is slow is asked for less often, and never makes the others wait."""

import math
import threading

import pytest

from holdfast.cli.top import sight
from holdfast.cli.top.sight import Part
from holdfast.domain.errors import StoreUnavailable
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


def test_the_last_answer_stands_until_the_share_of_the_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter(range(100))
    monkeypatch.setattr(sight, "SHARE", 1e-9)
    monkeypatch.setattr(sight, "SLOW_SECONDS", math.inf)
    part = Part(lambda: next(asked))
    assert [part.now() for _ in range(5)] == [0] * 5

    monkeypatch.setattr(sight, "SHARE", 1e9)
    part = Part(lambda: next(asked))
    assert [part.now() for _ in range(3)] == [1, 2, 3]


def test_a_slow_part_is_asked_for_aside_and_its_error_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "SHARE", 1e9)
    monkeypatch.setattr(sight, "SLOW_SECONDS", 0.0)
    go_on = threading.Event()
    answers = iter(["first", "second"])

    def ask() -> str:
        found = next(answers, None)
        if found == "second":
            assert go_on.wait(DEADLINE_SECONDS)
        if found is None:
            raise StoreUnavailable("away")
        return found

    part = Part(ask)
    assert [part.now(), part.now(), part.now()] == ["first"] * 3, "the second answer is waited for by nobody"
    go_on.set()
    wait_until(lambda: part.now() == "second", what="the second answer")

    def fails() -> bool:
        try:
            part.now()
        except StoreUnavailable:
            return True
        return False

    wait_until(fails, what="the error")
    assert part.now() == "second"
