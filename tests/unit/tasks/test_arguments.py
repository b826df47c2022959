"""Binding: positions, names, defaults, the context."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.tasks.arguments import AnyArguments, Arguments, InvalidArguments
from holdfast.tasks.context import Context, detached
from tests.unit.tasks import postponed


def plain(a: int, b: int = 2, *, c: str = "x") -> None: ...


def by_position(a: int, b: int = 2, /, c: int = 3) -> None: ...


def with_context(a: int, ctx: Context, b: int = 0) -> None: ...


def context_first(ctx: Context, /, a: int) -> None: ...


def optional_context(a: int, ctx: Context | None = None) -> None: ...


def catch_all(a: int, **rest: int) -> None: ...


def untyped(a, b=1): ...  # type: ignore[no-untyped-def]


CONTEXT = detached("run")


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payload"),
    [
        (plain, (1,), {}, {"a": 1}),
        (plain, (1,), {"b": 2}, {"a": 1, "b": 2}),
        (plain, (), {"c": "y", "a": 1}, {"a": 1, "c": "y"}),
        (by_position, (1, 2, 3), {}, {"a": 1, "b": 2, "c": 3}),
        (with_context, (1, 5), {}, {"a": 1, "b": 5}),
        (context_first, (1,), {}, {"a": 1}),
        (optional_context, (1,), {}, {"a": 1}),
        (catch_all, (1,), {"x": 2, "y": 3}, {"a": 1, "x": 2, "y": 3}),
        (untyped, ({"k": [1]},), {}, {"a": {"k": [1]}}),
        (postponed.run, (1,), {}, {"a": 1}),
        (postponed.only_for_the_checker, (1,), {}, {"a": 1}),
    ],
)
def test_arguments_are_bound_and_defaults_left_out(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], payload: dict[str, Any]
) -> None:
    assert Arguments(function, "run").dump(args, kwargs) == payload


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "field", "rule"),
    [
        (plain, (), {}, "a", "is missing; the task is run(a: int, b: int = 2, *, c: str = 'x')"),
        (plain, (1, 2, 3), {}, "argument 3", "one too many"),
        (plain, (1,), {"a": 1}, "a", "twice"),
        (plain, (1,), {"z": 1}, "z", "no parameter of run("),
        (by_position, (), {"a": 1}, "a", "by position"),
        (with_context, (1,), {"ctx": None}, "ctx", "leave it out"),
        (with_context, (1, 2, 3), {}, "argument 3", "one too many"),
        (catch_all, (1,), {"x": "2"}, "x", "integer"),
        (untyped, (object(),), {}, "a", "JSON cannot express"),
    ],
)
def test_what_does_not_fit_is_named(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Arguments(function, "run").dump(args, kwargs)

    assert caught.value.field == field
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("function", "payload", "args", "kwargs"),
    [
        (plain, {"a": 1}, (), {"a": 1}),
        (by_position, {"b": 5, "a": 1, "c": 6}, (1, 5), {"c": 6}),
        (by_position, {"a": 1}, (1, 2), {}),
        (with_context, {"a": 1}, (), {"a": 1, "ctx": CONTEXT}),
        (context_first, {"a": 1}, (CONTEXT,), {"a": 1}),
        (optional_context, {"a": 1}, (), {"a": 1, "ctx": CONTEXT}),
        (catch_all, {"a": 1, "x": 2}, (), {"a": 1, "x": 2}),
        (postponed.run, {"a": 1}, (), {"a": 1, "ctx": CONTEXT}),
        (postponed.only_for_the_checker, {"a": 1}, (), {"a": 1, "ctx": CONTEXT}),
    ],
)
def test_a_payload_becomes_the_arguments_of_a_call(
    function: Callable[..., Any], payload: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert Arguments(function, "run").load(payload, CONTEXT) == (args, kwargs)


@pytest.mark.parametrize(
    ("function", "payload", "field"),
    [
        (plain, {}, "a"),
        (plain, {"a": "1"}, "a"),
        (plain, {"a": 1, "z": 1}, "z"),
        (with_context, {"a": 1, "ctx": {}}, "ctx"),
    ],
)
def test_a_payload_that_does_not_fit_names_the_argument(
    function: Callable[..., Any], payload: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Arguments(function, "run").load(payload, CONTEXT)

    assert caught.value.field == field


def test_star_args_are_refused_when_the_task_is_made() -> None:
    def run(*numbers: int) -> None: ...

    with pytest.raises(ConfigurationError, match=r"task run: \*numbers .* list"):
        Arguments(run, "run")


def test_an_annotation_for_the_type_checker_alone_is_named_at_first_use() -> None:
    arguments = Arguments(postponed.unresolvable, "run")

    with pytest.raises(ConfigurationError, match="task run: the annotation of parameter b, 'Decimal'"):
        arguments.dump((1, 2), {})
    with pytest.raises(ConfigurationError, match="parameter b"):
        arguments.load({"a": 1, "b": 2}, CONTEXT)


def test_an_annotation_may_name_what_is_defined_below() -> None:
    assert Arguments(postponed.forward, "run").dump((postponed.Later(1),), {}) == {"value": {"x": 1}}


def test_a_command_takes_any_json_by_name() -> None:
    arguments = AnyArguments("convert")

    assert arguments.dump((), {"file": "a", "sizes": [1, None]}) == {"file": "a", "sizes": [1, None]}
    with pytest.raises(InvalidInput, match="argument 1: must be given by name: convert is a command"):
        arguments.dump(("a",), {})
    with pytest.raises(InvalidInput, match="when: is a object"):
        arguments.dump((), {"when": object()})


def test_a_result_comes_back_as_the_return_annotation_has_it() -> None:
    arguments = Arguments(postponed.returning, "run")

    assert arguments.load_result({"x": 1}) == postponed.Later(1)
    assert arguments.load_result("no such thing") == "no such thing"
    assert Arguments(postponed.returning_foreign, "run").load_result([1]) == [1]
    assert Arguments(untyped, "run").load_result([1]) == [1]
