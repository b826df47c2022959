"""How a worker that hears of work heeds it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.domain.events import Events
from holdfast.domain.worker_states import WorkerState
from holdfast.periodic.duties import Duties
from holdfast.ports import Store
from holdfast.worker.cycle import LONGEST_REST_SECONDS, SHORTEST_REST_SECONDS, Cycle
from holdfast.worker.pickup import Found, Pickup
from tests.servers.waiting import wait_until


class Answers:
    """A pickup whose answers are known beforehand; nothing, once they are used up."""

    busy = False

    def __init__(self) -> None:
        self.coming: list[Found] = []
        self.polls = 0

    def collect(self, _now: float) -> None: ...

    def poll(self, _now: float) -> Found:
        self.polls += 1
        return self.coming.pop(0) if self.coming else Found.NOTHING

    def next_wait(self) -> float:
        return 1_000.0


class NoDuties:
    pending = False
    error = None

    def step(self, _now: float) -> None: ...

    run_soon = show_soon = lambda _self: None


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def cycle(answers: Answers) -> Any:
    def connect() -> Store:
        return cast(Store, object())

    cycle = Cycle(connect, cast(Pickup, answers), cast(Duties, NoDuties()), Events(), lambda: None, lambda: True)

    def is_idle() -> bool:
        cycle.step(0.0)
        return cycle.state is WorkerState.IDLE

    wait_until(is_idle, what="it is connected and idle")
    yield cycle
    cycle.close()


def rung(cycle: Cycle, answers: Answers, now: float) -> bool:
    """Does it come?"""
    before = answers.polls
    cycle.ring()
    cycle.step(now)
    return answers.polls > before


def test_who_is_rung_comes_at_once(cycle: Cycle, answers: Answers) -> None:
    assert rung(cycle, answers, 10.0)


def test_who_came_for_nothing_heeds_the_next_word_a_little_later(cycle: Cycle, answers: Answers) -> None:
    assert rung(cycle, answers, 10.0)
    assert not rung(cycle, answers, 10.0 + SHORTEST_REST_SECONDS / 4)
    assert cycle.wake_at() <= 10.0 + SHORTEST_REST_SECONDS  # the word is not forgotten
    before = answers.polls
    cycle.step(10.0 + SHORTEST_REST_SECONDS)
    assert answers.polls == before + 1


def test_the_rest_grows_to_a_bound(cycle: Cycle, answers: Answers) -> None:
    now = 10.0
    for _ in range(10):
        assert rung(cycle, answers, now)
        now += LONGEST_REST_SECONDS
    assert rung(cycle, answers, now)
    assert not rung(cycle, answers, now + LONGEST_REST_SECONDS / 4)


def test_who_came_for_something_comes_at_once_again(cycle: Cycle, answers: Answers) -> None:
    answers.coming = [Found.SOME]
    assert rung(cycle, answers, 10.0)
    assert rung(cycle, answers, 10.0)
