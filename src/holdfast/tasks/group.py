"""Where tasks are registered: groups, which add a prefix and defaults, and at their root an app.

A registration is handed from group to group up to the app; each adds its prefix and, under what is already named, its
defaults. A group without an app keeps its tasks until it is included somewhere.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.manifest import Kind
from holdfast.domain.names import check_name
from holdfast.domain.schedule import DEFAULT_GRACE_SECONDS, Misfire
from holdfast.domain.webhook import DELIVERY_TASK
from holdfast.tasks.command import EXIT_PERMANENT, MAX_OUTPUT_BYTES, Command
from holdfast.tasks.definition import define_command, define_function
from holdfast.tasks.options import CommandOptions, Duration, TaskOptions, command_options, task_options
from holdfast.tasks.scheduled import Scheduled, Times
from holdfast.tasks.task import AnyFunction, AnyTask, AsyncTask, CommandTask, FunctionTask, Task

if TYPE_CHECKING:
    from holdfast.tasks.context import Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=AnyTask)


class TaskDecorator(Protocol):
    """A function becomes a task. A `Context` in the first place is handed in, so it is no argument of `enqueue`."""

    # A coroutine is an R like any other, hence the overlap; the first form that fits counts, and that is what is meant.
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> FunctionTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class ScheduleDecorator(Protocol):
    """A task stays what it is; a function becomes a task first."""

    @overload
    def __call__(self, task: T, /) -> T: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> FunctionTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class Registrar(ABC):
    """What apps and groups have in common."""

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function: Any = None, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> Any:
        """Register a function: `@app.task`, or `@app.task(queue="mail", timeout="5m")`."""
        checked = task_options(options)
        if name is not None:
            check_name(name, "name")
        if function is not None:
            return self._function(function, name, checked)
        return lambda decorated: self._function(decorated, name, checked)

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        misfire: Misfire | str = Misfire.ONCE,
        misfire_limit: int | None = None,
        misfire_grace: Duration = DEFAULT_GRACE_SECONDS,
        tick: str | None = None,
    ) -> ScheduleDecorator:
        """Run a task by itself, above `@app.task`: `@app.schedule("0 9 * * mon-fri", timezone="Europe/Berlin")`, or
        `@app.schedule(every="10m")`. `tick` names the parameter that is given the planned instant."""
        if cron is not None and not isinstance(cron, str):
            raise InvalidInput("cron", "must be text: say when the task runs, as in @app.schedule('0 9 * * *')")
        if name is not None:
            check_name(name, "name")
        times = Times(cron, every, timezone, tuple(args), kwargs, misfire, misfire_limit, misfire_grace, tick)
        place = _place_of(sys._getframe(1))

        def decorate(given: Any) -> Any:
            task = given if isinstance(given, Task) else self._function(given, None, {})
            self._register_schedule(Scheduled(task, times, place), name)
            return task

        return decorate

    def command(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        permanent_exit_codes: Sequence[int] = (EXIT_PERMANENT,),
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        **options: Unpack[CommandOptions],
    ) -> CommandTask:
        """Register a program in any language, started from its argv and never by a shell."""
        check_name(name, "name")
        command = Command(
            argv=argv,
            env={} if env is None else env,
            cwd=cwd,
            permanent_exit_codes=permanent_exit_codes,
            max_output_bytes=max_output_bytes,
        )
        place = _place_of(sys._getframe(1))
        task = CommandTask(define_command(name, command, command_options(options), place))
        self._register(task, name, task.definition.options)
        return task

    def group(self, name: str, **defaults: Unpack[TaskOptions]) -> TaskGroup:
        """A group inside this one."""
        group = TaskGroup(name, **defaults)
        self.include(group)
        return group

    def include(self, group: TaskGroup) -> None:
        """Take in a group, with all the tasks that it has and will have."""
        if not isinstance(group, TaskGroup):
            raise InvalidInput("group", f"must be a TaskGroup, got {type(group).__name__}")
        group._join(self)

    def _function(self, function: AnyFunction, name: str | None, options: dict[str, Any]) -> AnyTask:
        definition = define_function(function, name, options)
        task: AnyTask = AsyncTask(definition) if definition.kind is Kind.ASYNC else FunctionTask(definition)
        self._register(task, definition.name, options)
        return task

    @abstractmethod
    def _register(self, task: AnyTask, name: str, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _register_schedule(self, scheduled: Scheduled, name: str | None) -> None:
        """Without a name it has that of its task."""


class TaskGroup(Registrar):
    """`TaskGroup("billing", queue="billing")`: its tasks are called billing.…; `app.include(group)` brings them in."""

    def __init__(self, name: str, **defaults: Unpack[TaskOptions]) -> None:
        self.name = check_name(name, "name")
        self._defaults = task_options(defaults)
        self._parent: Registrar | None = None
        self._entries: list[tuple[AnyTask, str, Mapping[str, Any]]] = []
        self._schedules: list[tuple[Scheduled, str | None]] = []

    def _register(self, task: AnyTask, name: str, options: Mapping[str, Any]) -> None:
        full_name = check_name(f"{self.name}.{name}", "name")
        all_options = {**self._defaults, **options}
        task.definition.rename(full_name, all_options)
        self._entries.append((task, full_name, all_options))
        if self._parent is not None:
            self._parent._register(task, full_name, all_options)

    def _register_schedule(self, scheduled: Scheduled, name: str | None) -> None:
        full_name = None if name is None else check_name(f"{self.name}.{name}", "name")
        self._schedules.append((scheduled, full_name))
        if self._parent is not None:
            self._parent._register_schedule(scheduled, full_name)

    def _join(self, parent: Registrar) -> None:
        if self._parent is not None:
            raise ConfigurationError(f"group {self.name} is already included; a group belongs to one place")
        above: Registrar | None = parent
        while isinstance(above, TaskGroup):
            if above is self:
                raise ConfigurationError(f"group {self.name} cannot be included in itself")
            above = above._parent
        self._parent = parent
        for entry in self._entries:
            parent._register(*entry)
        for scheduled, name in self._schedules:
            parent._register_schedule(scheduled, name)


class Registry(Registrar):
    """The root: every task of an app, by its full name."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}
        self._scheduled: dict[str, Scheduled] = {}

    def _register(self, task: AnyTask, name: str, options: Mapping[str, Any]) -> None:
        if name == DELIVERY_TASK:
            raise ConfigurationError(
                f"{task.definition.place}: {DELIVERY_TASK} is the engine's own task, which delivers webhooks; choose"
                " another name"
            )
        known = self._tasks.get(name)
        if known is not None:
            raise ConfigurationError(
                f"two tasks are called {name}: {known.definition.place} and {task.definition.place};"
                " rename one, give it another name=, or put it into a group"
            )
        task.definition.rename(name, options)
        self._tasks[name] = task

    def _register_schedule(self, scheduled: Scheduled, name: str | None) -> None:
        task = scheduled.task
        if self._tasks.get(task.name) is None or self._tasks[task.name].definition is not task.definition:
            raise ConfigurationError(
                f"schedule at {scheduled.place}: task {task.name} does not belong to this app; schedule it where it is"
                " registered, or include its group first"
            )
        name = name or task.name
        known = self._scheduled.get(name)
        if known is not None:
            raise ConfigurationError(
                f"two schedules are called {name}: {known.place} and {scheduled.place}; give one of them another name="
            )
        self._scheduled[name] = scheduled


def _place_of(caller: FrameType) -> str:
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"
