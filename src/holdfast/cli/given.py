"""Typer converts values with pydantic, and loads it for every flag that could have been given, even where none was.

Text needs no conversion, and a default has the right type already. So pydantic is loaded for a number or a choice that
somebody typed, and for nothing else: it takes longer than most commands, and a worker would keep it for life.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

PLAIN = (bool, int, str)


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
    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._is_many = parameter.multiple or parameter.nargs == -1
        self._annotation = parameter.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._is_many:
            return self._converted(value, param, ctx) if value else ()
        if value is None or (self._annotation in PLAIN and type(value) is self._annotation):
            return value
        return self._converted(value, param, ctx)

    def _converted(self, value: Any, param: Any, ctx: Any) -> Any:
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)
