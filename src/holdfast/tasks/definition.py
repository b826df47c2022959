"""What is registered under a task's name; shared by the task and every copy that `using` makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo
from holdfast.tasks.arguments import AnyArguments, Arguments
from holdfast.tasks.options import in_manifest, on_new_job

if TYPE_CHECKING:
    from holdfast.tasks.command import Command
    from holdfast.tasks.home import Home


class Definition:
    """Name and options grow while groups are put into groups; they are final once an app has it."""

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        arguments: Arguments | AnyArguments,
        *,
        place: str,
        kind: Kind,
        command: Command | None = None,
    ) -> None:
        self.arguments = arguments
        self.place = place
        self.kind = kind
        self.command = command
        self._home: Home | None = None
        self.rename(name, options)

    def rename(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = self.arguments.task = name
        self.options = dict(options)
        self.job_defaults = on_new_job(options)

    def belongs_to(self, home: Home) -> None:
        self._home = home

    @property
    def home(self) -> Home:
        if self._home is None:
            raise ConfigurationError(
                f"task {self.name} ({self.place}) belongs to no app yet: put its group into one with app.include(group)"
            )
        return self._home

    @property
    def no_retry(self) -> tuple[type[BaseException], ...]:
        classes: tuple[type[BaseException], ...] = self.options.get("no_retry", ())
        return classes

    def info(self) -> TaskInfo:
        return TaskInfo(
            self.name,
            self.options.get("version"),
            self.kind,
            self.options.get("on_lost_lease", OnLostLease.KILL),
            in_manifest(self.options),
        )


def define_function(function: Callable[..., Any], name: str | None, options: dict[str, Any]) -> Definition:
    name = name or _own_name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"task {name} is a generator; a task returns its result")
    kind = Kind.ASYNC if inspect.iscoroutinefunction(function) else Kind.SYNC
    return Definition(name, options, Arguments(function, name), place=_place_of(function), kind=kind)


def define_command(name: str, command: Command, options: dict[str, Any], place: str) -> Definition:
    return Definition(name, options, AnyArguments(name), place=place, kind=Kind.COMMAND, command=command)


def _own_name(function: Any) -> str:
    if not callable(function) or isinstance(function, type):
        raise ConfigurationError(f"a task is a function, not {function!r}")
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigurationError(f"{function!r} has no name of its own: give it one with name=")
    return name


def _place_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{code.co_filename}:{code.co_firstlineno}"
