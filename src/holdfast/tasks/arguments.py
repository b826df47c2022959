"""A task's arguments: bound by its signature when it is enqueued, checked again when it runs.

The payload is a JSON object of the parameters that were given; defaults are not filled in, so that a default belongs to
the code that runs. Annotations are resolved at the first use, not at import: they may name what is defined below.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.spec import Undecodable
from holdfast.tasks.annotations import RETURN, is_context, resolve
from holdfast.tasks.values import Json, Value, check_argument, value_of

if TYPE_CHECKING:
    from holdfast.tasks.context import Context

_EMPTY = inspect.Parameter.empty
_KIND = inspect.Parameter


class InvalidArguments(InvalidInput):
    """A stored payload does not fit the task's signature: trying again would not help."""


def decodable(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of a job that is about to run; refuses what stands for one that cannot be decoded."""
    if isinstance(payload, Undecodable):
        raise InvalidArguments("payload", f"{payload.reason}; correct the row's payload and requeue the job")
    return payload


@dataclass(frozen=True, slots=True)
class _Shape:
    """A signature, prepared for binding."""

    values: dict[str, Value]
    positional: tuple[str, ...]  # that may be given by position, in order
    dumps: tuple[tuple[str, Callable[[Any], Any]], ...]  # the same, with how each is stored
    positional_only: tuple[str, ...]  # with the context's parameter in its place
    required: frozenset[str]
    enough: float  # so many by position, and nothing is missing
    context: str | None
    extra: Callable[[str], Value] | None  # what **kwargs takes


class Arguments:
    """The arguments of a Python function."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self.function = function
        self.task = task
        self._signature = _signature(function, task)

    def dump(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The payload for these arguments; an InvalidInput names the one that is wrong."""
        shape = self._shape
        if len(arguments) > len(shape.positional):
            raise InvalidInput(f"argument {len(shape.positional) + 1}", f"is one too many for {self}")
        payload = {name: dump(value) for (name, dump), value in zip(shape.dumps, arguments, strict=False)}
        if not named and len(arguments) >= shape.enough:
            return payload
        values = shape.values
        for name, value in named.items():
            if name in payload:
                raise InvalidInput(name, "was given twice, by position and by name")
            if name in shape.positional_only:
                raise InvalidInput(name, f"must be given by position to {self}")
            payload[name] = (values.get(name) or self._extra(name)).dump(value)
        if not shape.required <= payload.keys():
            raise InvalidInput(self._missing(payload), f"is missing; the task is {self}")
        return payload

    def dump_some(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """As they would be stored, though others may be missing."""
        return {name: (self._shape.values.get(name) or self._extra(name)).dump(value) for name, value in named.items()}

    def load(self, payload: Mapping[str, Any], context: Context | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with; an InvalidArguments names the one that does not fit."""
        shape = self._shape
        try:
            named = {name: (shape.values.get(name) or self._extra(name)).load(value) for name, value in payload.items()}
        except InvalidInput as error:
            raise InvalidArguments(error.field, error.rule) from None
        if not shape.required <= named.keys():
            raise InvalidArguments(self._missing(named), f"is missing; the task is {self}")
        if shape.context is not None:
            named[shape.context] = context
        if not shape.positional_only:
            return (), named
        return tuple(self._by_position(name, named) for name in shape.positional_only), named

    def load_result(self, value: Any) -> Any:
        """A stored result as the return annotation has it; where that does not fit, as it is stored."""
        try:
            return self._result.load(value)
        except InvalidInput:
            return value

    @property
    def wants_context(self) -> bool:
        return self._shape.context is not None

    def with_context(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], context: Context
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of a direct call, with the context put in its place."""
        name = self._shape.context
        if name is None or name in named:
            return arguments, named
        place = list(self._signature.parameters).index(name)
        if place <= len(arguments):
            return (*arguments[:place], context, *arguments[place:]), named
        return arguments, {**named, name: context}

    def __str__(self) -> str:
        own = [item for name, item in self._signature.parameters.items() if name != self._shape.context]
        return f"{self.task}{self._signature.replace(parameters=own, return_annotation=_EMPTY)}"

    @cached_property
    def _shape(self) -> _Shape:
        annotations = {name: self._annotation(name) for name in self._signature.parameters}
        context = next((name for name, annotation in annotations.items() if is_context(annotation)), None)
        own = {name: item for name, item in self._signature.parameters.items() if name != context}
        catch_all = next((name for name, item in own.items() if item.kind is _KIND.VAR_KEYWORD), None)
        own = {name: item for name, item in own.items() if name != catch_all}
        positional = tuple(name for name, item in own.items() if item.kind is not _KIND.KEYWORD_ONLY)
        required = frozenset(name for name, item in own.items() if item.default is _EMPTY)
        values = {name: self._value(name, annotations[name]) for name in own}
        return _Shape(
            values=values,
            positional=positional,
            dumps=tuple((name, values[name].dump) for name in positional),
            positional_only=tuple(
                name for name, item in self._signature.parameters.items() if item.kind is _KIND.POSITIONAL_ONLY
            ),
            required=required,
            enough=len(required) if required <= set(positional) else math.inf,
            context=context,
            extra=None if catch_all is None else lambda name: self._value(name, annotations[catch_all]),
        )

    @cached_property
    def _result(self) -> Value:
        try:
            annotation = resolve(self.function, self.task, RETURN, self._signature.return_annotation)
            return self._value(RETURN, annotation)
        except ConfigurationError:  # a result needs no annotation that pydantic can read
            return Json(RETURN)

    def _annotation(self, name: str) -> Any:
        annotation = self._signature.parameters[name].annotation
        return annotation if annotation is _EMPTY else resolve(self.function, self.task, name, annotation)

    def _value(self, name: str, annotation: Any) -> Value:
        return Json(name) if annotation is _EMPTY else value_of(name, annotation, self.task)

    def _extra(self, name: str) -> Value:
        shape = self._shape
        if name == shape.context:
            raise InvalidInput(name, "is the context, which is handed in when the job runs; leave it out")
        if shape.extra is None:
            raise InvalidInput(str(name), f"is no parameter of {self}")
        return shape.extra(name)

    def _missing(self, given: Mapping[str, Any]) -> str:
        return next(name for name in self._shape.values if name in self._shape.required and name not in given)

    def _by_position(self, name: str, named: dict[str, Any]) -> Any:
        return named.pop(name, self._signature.parameters[name].default)


class AnyArguments:
    """The arguments of a command: any JSON, by name."""

    def __init__(self, task: str) -> None:
        self.task = task

    def dump(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        if arguments:
            raise InvalidInput("argument 1", f"must be given by name: {self.task} is a command")
        return self.dump_some(named)

    def dump_some(self, named: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in named.items():
            check_argument(value, name)
        return dict(named)

    def load(self, payload: Mapping[str, Any], context: Context | None) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ARG002
        return (), dict(payload)

    def load_result(self, value: Any) -> Any:
        return value


def _signature(function: Callable[..., Any], task: str) -> inspect.Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"task {task}: its signature cannot be read ({error}); wrap it in a def") from error
    for name, parameter in signature.parameters.items():
        if parameter.kind is _KIND.VAR_POSITIONAL:
            raise ConfigurationError(
                f"task {task}: *{name} has no name in a payload; use a parameter that is a list instead"
            )
    return signature
