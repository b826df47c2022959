"""Import `MODULE:APP` and say in one sentence what is wrong when that fails."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.tasks.app import App


class Broken(Exception):
    """The app cannot be used; the message tells the user what to do."""

    def __init__(self, message: str, stack: str | None = None) -> None:
        super().__init__(message)
        self.stack = stack


def load(target: str) -> App:
    """`module:attribute`, where the attribute may be dotted and defaults to `app`."""
    _make_working_directory_importable()
    module_name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    found = _attribute(_module(module_name), module_name, attribute)
    if not isinstance(getattr(found, "tasks", None), Mapping):
        raise Broken(
            f"{module_name}:{attribute} is a {type(found).__name__}, not a Holdfast App;"
            " give MODULE:NAME where NAME is the variable that holds holdfast.App()"
        )
    return found  # type: ignore[no-any-return]


def _make_working_directory_importable() -> None:
    # `python -m` puts it there unless PYTHONSAFEPATH is set.
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        stack = traceback.format_exc()
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Broken(
                f"there is no module {name!r} in {os.getcwd()} or on the Python path;"  # noqa: PTH109
                " start the worker in the directory that holds it, or check the spelling",
                stack,
            ) from error
        raise Broken(f"importing {name!r} needs {error.name!r}, which is not installed here", stack) from error
    except SyntaxError as error:
        place = f"{error.filename}, line {error.lineno}"
        raise Broken(f"{place} has a syntax error: {error.msg}; correct it", traceback.format_exc()) from error
    except BaseException as error:  # whatever a module does at import, sys.exit included, is reported
        problem = f"{type(error).__name__}: {error}"
        raise Broken(f"importing {name!r} failed with {problem}; correct the module", traceback.format_exc()) from error


def _attribute(module: Any, module_name: str, dotted: str) -> Any:
    found = module
    for part in dotted.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise Broken(
                f"module {module_name!r} has no {dotted!r}; name the variable that holds the App, as in"
                f" {module_name}:app"
            ) from error
    return found
