"""From what a task returned or raised to an outcome."""

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import App, Cancel, Cancelled, Context, Crashed, Failed, Permanent, Snooze, Snoozed, Succeeded, current
from holdfast.domain.errors import InvalidInput, LeaseLost
from holdfast.domain.outcome import Outcome
from holdfast.tasks.context import JobInfo, Silent
from holdfast.tasks.execute import acall, call, outcome_of, outcome_of_error
from holdfast.tasks.task import AnyTask

app = App("sqlite:///nowhere/never-opened.db")


class Model(BaseModel):
    when: dt.date


@dataclass
class Point:
    x: int


class Refused(Exception):
    pass


@app.task(no_retry=(Refused, LookupError))
def raising(kind: str) -> Any:
    wrong: dict[str, BaseException] = {
        "value": ValueError("bad"),
        "refused": Refused("no"),
        "key": KeyError("k"),
        "snooze": Snooze("1m", reason="busy"),
        "cancel": Cancel("not needed"),
        "permanent": Permanent("never"),
        "memory": MemoryError("too much"),
        "bare memory": MemoryError(),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
        "invalid": InvalidInput("a", "of some other call"),
        "lease": LeaseLost("gone"),
    }
    raise wrong[kind]


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task
async def aadd(ctx: Context, a: int) -> int:
    await asyncio.sleep(0)
    assert current() is ctx
    return a + ctx.attempt


@app.task
def whoami(ctx: Context) -> bool:
    return current() is ctx


def context_for(task: AnyTask, **payload: Any) -> Context:
    return Context(JobInfo(id="1", task=task.name, payload=payload), Silent(), "token")


def ended(task: AnyTask, **payload: Any) -> Outcome:
    try:
        value = call(task, context_for(task, **payload))
    except BaseException as error:
        return outcome_of_error(task, error)
    return outcome_of(task, value)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (5, 5),
        ({"a": [1.5, (2, 3)]}, {"a": [1.5, (2, 3)]}),
        (Point(1), {"x": 1}),
        (Model(when=dt.date(2030, 1, 2)), {"when": "2030-01-02"}),
        ([dt.timedelta(seconds=90)], ["PT1M30S"]),
        ({1: "a"}, {"1": "a"}),
        ({7}, [7]),
    ],
)
def test_a_returned_value_is_the_result_as_json(value: Any, stored: Any) -> None:
    assert outcome_of(add, value) == Succeeded(stored)


@pytest.mark.parametrize("value", [object(), float("nan"), "\x00", [lambda: 1], b"\xff", {"a": {"b": float("inf")}}])
def test_a_result_that_json_cannot_hold_is_a_permanent_failure(value: Any) -> None:
    outcome = outcome_of(add, value)

    assert isinstance(outcome, Failed)
    assert (outcome.error.code, outcome.error.retryable) == ("unserialisable_result", False)
    assert outcome.error.message.startswith("result")


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (Snooze(60), Snoozed(60.0)),
        (Snooze(dt.timedelta(minutes=1), reason="busy"), Snoozed(60.0, "busy")),
        (Cancel("done by hand"), Cancelled("done by hand")),
    ],
)
def test_control_flow_may_be_returned(value: Any, outcome: Outcome) -> None:
    assert outcome_of(add, value) == outcome


def test_permanent_may_be_returned_with_an_error_or_a_word() -> None:
    for value, code, message in (
        (Permanent("never"), "Permanent", "never"),
        (Permanent(KeyError("k")), "KeyError", "'k'"),
    ):
        outcome = outcome_of(add, value)
        assert isinstance(outcome, Failed)
        error = outcome.error
        assert (error.code, error.message, error.stack, error.retryable) == (code, message, None, False)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("snooze", Snoozed(60.0, "busy")),
        ("cancel", Cancelled("not needed")),
        ("memory", Crashed("MemoryError: too much")),
        ("bare memory", Crashed("MemoryError")),
    ],
)
def test_control_flow_may_be_raised(kind: str, outcome: Outcome) -> None:
    assert ended(raising, kind=kind) == outcome


@pytest.mark.parametrize(
    ("kind", "code", "message", "retryable"),
    [
        ("value", "ValueError", "bad", True),
        ("refused", "Refused", "no", False),
        ("key", "KeyError", "'k'", False),
        ("permanent", "Permanent", "never", False),
        ("exit", "SystemExit", "3", True),
        ("interrupt", "KeyboardInterrupt", "", True),
        ("cancelled", "CancelledError", "", True),
        ("invalid", "InvalidInput", "a: of some other call", True),
        ("lease", "LeaseLost", "gone", True),
    ],
)
def test_an_exception_is_a_failure(kind: str, code: str, message: str, retryable: bool) -> None:
    outcome = ended(raising, kind=kind)

    assert isinstance(outcome, Failed)
    error = outcome.error
    assert (error.code, error.message, error.retryable) == (code, message, retryable)
    assert error.stack is not None
    assert "raise wrong[kind]" in error.stack
    assert "holdfast/tasks" not in error.stack


@pytest.mark.parametrize("payload", [{}, {"a": "1"}, {"a": 1, "z": 2}])
def test_a_payload_that_does_not_fit_is_a_permanent_failure(payload: dict[str, Any]) -> None:
    outcome = ended(add, **payload)

    assert isinstance(outcome, Failed)
    assert (outcome.error.code, outcome.error.retryable) == ("invalid_arguments", False)
    assert outcome.error.message.startswith(("a: ", "z: "))


def test_an_exception_that_cannot_be_printed_is_still_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    outcome = outcome_of_error(add, Mute())
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "<Mute that cannot be printed>"


def test_functions_of_both_colours_run_from_both_colours() -> None:
    async def inside() -> list[Any]:
        return [
            await acall(add, context_for(add, a=1)),
            await acall(aadd, context_for(aadd, a=1)),
            call(aadd, context_for(aadd, a=1)),  # as in a notebook, whose loop is running
            await acall(whoami, context_for(whoami)),
        ]

    assert call(add, context_for(add, a=1)) == 3
    assert call(aadd, context_for(aadd, a=1)) == 2
    assert call(whoami, context_for(whoami)) is True
    assert asyncio.run(inside()) == [3, 2, 2, True]
