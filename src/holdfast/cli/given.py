"""Typer converts values with pydantic, and loads it for every flag that could have been given, even where none was.

Text needs no conversion, a default has the right type already, and digits are a number. So pydantic is loaded for what
is harder, and for what is wrong, which it explains: it takes longer than most commands, and a worker would keep it for
life.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

PLAIN = (bool, int, str)
_DIGITS = re.compile(r"[0-9]{1,18}")


class LightCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _light(super().get_params(ctx))


class LightGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _light(super().get_params(ctx))


def _light(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # A Typer that converts in another way is left alone: this saves time and changes no value.
        if getattr(parameter, "_runtime_param", ...) is None:
            parameter._runtime_param = _OnlyGiven(parameter)
    return parameters


class _OnlyGiven:
    """Stands where Typer keeps its own conversion, until that is needed."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._is_many = parameter.multiple or parameter.nargs == -1
        self._wanted = parameter.type_descriptor.annotation
        info = parameter.type_descriptor.parameter_info
        self._is_bounded = info.min is not None or info.max is not None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._is_many:
            return self._converted(value, param, ctx) if value else ()
        if value is None or self._fits(value):
            return value
        if self._wanted is int and not self._is_bounded and isinstance(value, str) and _DIGITS.fullmatch(value):
            return int(value)
        return self._converted(value, param, ctx)

    def _fits(self, value: Any) -> bool:
        if get_origin(self._wanted) is Literal:
            return value in get_args(self._wanted)
        return self._wanted in PLAIN and type(value) is self._wanted

    def _converted(self, value: Any, param: Any, ctx: Any) -> Any:
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)
