"""One argument's way into JSON and back, by its annotation.

A value is right if strict Python validation accepts it (an instance of the class), or if strict JSON validation accepts
its JSON text (a dict for a model, an ISO string for a datetime). What is stored is JSON that strict validation turns
back into an equal value; a value for which that does not hold (a SecretStr, say, which writes stars) is refused.

Values of the plain types, which is most of them, never reach pydantic.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.spec import check_json, encode_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_PLAIN = (int, str, bool, float, type(None))

Refuse = Callable[[str, str], InvalidInput]


class Json:
    """A parameter without an annotation: a JSON value, as it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dump(self, value: Any) -> Any:
        check_argument(value, self.name)
        return value

    def load(self, value: Any) -> Any:
        return value


class Typed:
    """A parameter with an annotation."""

    def __init__(self, name: str, annotation: Any, task: str) -> None:
        self.name = name
        self._annotation = annotation
        self._task = task
        self._plain = plain_types(annotation)

    def dump(self, value: Any) -> Any:
        if type(value) in self._plain:
            check_argument(value, self.name)
            return value
        return self._dumped(self._valid(value))

    def load(self, value: Any) -> Any:
        if type(value) in self._plain:
            return value
        from pydantic import ValidationError

        try:
            return self.adapter.validate_json(encode_json(value), strict=True)
        except ValidationError as error:
            raise InvalidInput(self.name, explained(error)) from None

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            return TypeAdapter(self._annotation)
        except (PydanticUserError, NameError, TypeError) as error:
            said = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"task {self._task}: parameter {self.name} has an annotation that nothing can be checked against,"
                f" {self._annotation!r}: {said}"
            ) from error

    def check(self) -> None:
        """An annotation that pydantic cannot read is found here, not by the first unlucky value."""
        if not self._plain:
            _ = self.adapter

    def _valid(self, value: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(value, strict=True)
        except ValidationError as error:
            return self._valid_as_json(value, error)

    def _valid_as_json(self, value: Any, refusal: ValidationError) -> Any:
        from pydantic import ValidationError

        try:
            check_json(value, self.name)
        except InvalidInput:
            raise InvalidInput(self.name, explained(refusal)) from None
        try:
            return self.adapter.validate_json(encode_json(value), strict=True)
        except ValidationError as error:
            # JSON's complaint says what is wrong with the content; Python's often only that it is no instance.
            raise InvalidInput(self.name, explained(error)) from None

    def _dumped(self, valid: Any) -> Any:
        try:
            stored = self._as_json(valid)
        except Exception as error:  # a serialiser of the user's own may raise anything
            raise InvalidInput(self.name, f"cannot be written as JSON ({error})") from error
        check_argument(stored, self.name)
        if not self._comes_back(valid, stored):
            raise InvalidInput(self.name, f"does not come back from JSON as the {type(valid).__name__} that went in")
        return stored

    def _as_json(self, valid: Any) -> Any:
        return self.adapter.dump_python(valid, mode="json", by_alias=True, round_trip=True, warnings="error")

    def _comes_back(self, valid: Any, stored: Any) -> bool:
        try:
            loaded = self.load(stored)
        except InvalidInput:
            return False
        # Classes without an equality of their own are compared by their fields.
        return bool(loaded == valid) or self._fields(loaded) == self._fields(valid)

    def _fields(self, value: Any) -> Any:
        return self.adapter.dump_python(value, round_trip=True)


Value = Json | Typed


def value_of(name: str, annotation: Any, task: str) -> Value:
    if annotation in (Any, object):
        return Json(name)
    typed = Typed(name, annotation, task)
    typed.check()
    return typed


def plain_types(annotation: Any) -> frozenset[type]:
    """The classes whose very instances are right and are their own JSON; empty unless that is the whole annotation."""
    if annotation is None:
        return frozenset({type(None)})
    if isinstance(annotation, type) and annotation in _PLAIN:
        return frozenset({annotation})
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [plain_types(part) for part in typing.get_args(annotation)]
        return frozenset().union(*parts) if all(parts) else frozenset()
    return frozenset()


def check_argument(value: Any, name: str) -> None:
    """As `check_json`, with the argument's own name as the field and the way inside it in the rule."""
    if type(value) is int and value.bit_length() < 64:
        return
    try:
        check_json(value, name)
    except InvalidInput as error:
        inside = error.field[len(name) :]
        if not inside:
            raise
        raise InvalidInput(name, f"at {inside}: {error.rule}") from None


def explained(error: ValidationError) -> str:
    """The first thing pydantic found, in one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{f'at {place}: ' if place else ''}{message}, got {_shown(first['input'])}"


def _shown(value: Any) -> str:
    kind = type(value).__name__
    try:
        text = repr(value)
    except Exception:  # a class of the user's own, or an integer of thousands of digits
        return f"a {kind}"
    return f"{text if len(text) <= 60 else text[:57] + '…'} ({kind})"
