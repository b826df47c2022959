"""What a function's annotations mean: resolved one by one, so that a problem can name its parameter."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from holdfast.domain.errors import ConfigurationError
from holdfast.tasks.context import Context

RETURN = "return"


def resolve(function: Callable[..., Any], task: str, name: str, annotation: Any) -> Any:
    """The annotation as a type. Under `from __future__ import annotations` it arrives as text."""
    if isinstance(annotation, str) and annotation.rpartition(".")[2] == Context.__name__:
        # Also where Context is imported only for the type checker.
        annotation = _evaluated(function, annotation, default=Context)
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, _globals(function), include_extras=True)[name]
    except Exception as error:  # whatever evaluating the user's expression raises
        what = "the result" if name == RETURN else f"parameter {name}"
        raise ConfigurationError(
            f"task {task}: the annotation of {what}, {annotation!r}, cannot be resolved ({error}); import or define"
            " its names at module level, not only under TYPE_CHECKING"
        ) from error


def is_context(annotation: Any) -> bool:
    """`Context`, also as `Context | None` or `Annotated[Context, …]`."""
    if isinstance(annotation, type):
        return issubclass(annotation, Context)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return any(is_context(part) for part in typing.get_args(annotation))
    return False


def _evaluated(function: Callable[..., Any], text: str, default: Any) -> Any:
    try:
        return eval(text, _globals(function))
    except Exception:
        return default


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    found = getattr(inspect.unwrap(function), "__globals__", None)
    return found if isinstance(found, dict) else {}
