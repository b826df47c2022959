"""A turn that is interrupted at each of its steps."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast.tasks import turn
from holdfast.tasks.turn import Turn
from tests.servers.waiting import DEADLINE_SECONDS


def interrupt_step(number: int, act: Callable[[], object], work: Callable[[], None]) -> bool:
    """Runs `work`, and `act` in the middle of it, before the given step of the turn's own code, as a signal handler
    would. False: it has no so many steps."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != turn.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == number:
                sys.settrace(None)
                act()
        return trace

    before = sys.gettrace()  # that of a measurement of coverage
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps >= number


def take(held: Turn) -> None:
    with held:
        pass


def take_inside(held: Turn) -> None:
    with held:
        take(held)


def others_get_it(held: Turn) -> bool:
    thread = threading.Thread(target=take, args=(held,), daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)  # to the end only where it fails
    return not thread.is_alive()


@pytest.mark.parametrize("work", [take, take_inside])
def test_who_is_told_that_it_is_free_need_not_fear_that_nobody_else_gets_it(work: Callable[[Turn], None]) -> None:
    number = 1
    seen = set()
    held = Turn()

    def interrupt() -> None:
        is_free = not held.is_mine
        seen.add(is_free)
        if is_free:
            assert others_get_it(held), f"interrupted before step {number}"

    while interrupt_step(number, interrupt, lambda: work(held)):
        number += 1
    assert seen == {True, False}
    assert others_get_it(held)


@pytest.mark.parametrize("work", [take, take_inside])
def test_what_is_put_off_is_done_when_the_turn_is_over(work: Callable[[Turn], None]) -> None:
    number = 1
    put_off = 0
    done: list[int] = []
    held = Turn()

    def interrupt() -> None:
        nonlocal put_off
        put_off += held.later(lambda: done.append(number))

    while interrupt_step(number, interrupt, lambda: work(held)):
        assert len(done) == put_off, f"interrupted before step {number}"
        number += 1
    assert put_off > 1
