"""A task, as the code that enqueues it sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack

from holdfast.domain.alike import AlikeJobs
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Enqueued, NewJob
from holdfast.tasks.arguments import AnyArguments, Arguments
from holdfast.tasks.context import Context, current_or_none, detached
from holdfast.tasks.handle import Handle
from holdfast.tasks.options import JobOptions, job_options, on_new_job
from holdfast.tasks.tracing import enqueueing, is_apart

if TYPE_CHECKING:
    from holdfast.domain.manifest import Kind, TaskInfo
    from holdfast.tasks.command import Command
    from holdfast.tasks.definition import Definition
    from holdfast.tasks.home import AppStore

P = ParamSpec("P")
R = TypeVar("R")

Item = tuple[Any, ...] | Mapping[str, Any]

_EITHER = {"delay": "run_after", "run_after": "delay"}


class Task(Generic[P, R]):
    """What can be enqueued. `using` returns a copy; a task itself never changes."""

    def __init__(self, definition: Definition, options: Mapping[str, Any] | None = None) -> None:
        self.definition = definition
        self._options = dict(options or {})
        self._job_options = on_new_job(self._options)
        self._known_like: tuple[tuple[Any, ...], NewJob] | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def kind(self) -> Kind:
        return self.definition.kind

    @property
    def arguments(self) -> Arguments | AnyArguments:
        return self.definition.arguments

    @property
    def no_retry(self) -> tuple[type[BaseException], ...]:
        return self.definition.no_retry

    def info(self) -> TaskInfo:
        return self.definition.info()

    def using(self, **options: Unpack[JobOptions]) -> Self:
        """This task with other options for the jobs it enqueues."""
        given = job_options(options)
        # Of "when", the later word counts.
        replaced = {_EITHER[name] for name in given if name in _EITHER}
        kept = {name: value for name, value in self._options.items() if name not in replaced}
        return type(self)(self.definition, {**kept, **given})

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a job that runs this task with these arguments."""
        home = self.definition.home
        job = self._new_job(args, kwargs)
        if is_apart():
            return Handle(home, home.store.enqueue(job, self._connection))
        with enqueueing([job]) as sent:
            answer = home.store.enqueue(sent.jobs[0], self._connection)
            sent.answered([answer])
        return Handle(home, answer)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same from async code; `connection` may then be an AsyncSession or AsyncConnection."""
        answers = await self._store([self._new_job(args, kwargs)], self._connection)
        return Handle(self.definition.home, answers[0])

    def enqueue_many(self, items: Iterable[Item], *, connection: Any = None) -> list[Handle[R]]:
        """One job an item, all of them or none. An item is a tuple of arguments, or a mapping of named ones."""
        home = self.definition.home
        jobs = self._new_jobs(items)
        with enqueueing(jobs) as sent:
            answers = home.store.enqueue_many(sent.jobs, self._connection if connection is None else connection)
            sent.answered(answers)
        return [Handle(home, answer) for answer in answers]

    async def aenqueue_many(self, items: Iterable[Item], *, connection: Any = None) -> list[Handle[R]]:
        jobs = list(self._new_jobs(items))  # made here, by the code that owns the items, before others go on
        answers = await self._store(jobs, self._connection if connection is None else connection)
        return [Handle(self.definition.home, answer) for answer in answers]

    @property
    def _connection(self) -> Any:
        return self._options.get("connection")

    async def _store(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        import asyncio

        home = self.definition.home
        store = await asyncio.to_thread(lambda: home.store)  # the first use opens it
        with enqueueing(jobs) as sent:
            answers = await self._store_in(store, sent.jobs, connection)
            sent.answered(answers)
        return answers

    async def _store_in(self, store: AppStore, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        if connection is None:
            import asyncio

            return await asyncio.to_thread(store.enqueue_many, jobs)
        if hasattr(connection, "run_sync"):
            return await store.aenqueue_many(jobs, connection)
        # A connection of the blocking kind may be bound to the thread that it is used in.
        return store.enqueue_many(jobs, connection)

    def _new_job(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> NewJob:
        payload = self.definition.arguments.dump(arguments, named)
        return self._like().with_payload(payload)

    def _like(self) -> NewJob:
        """A job with everything that this task's jobs share: what was checked once is not checked for each of them."""
        definition = self.definition
        depends_on = definition.name, definition.job_defaults, definition.home.lease_seconds
        if self._known_like is None or self._known_like[0] != depends_on:
            self._known_like = depends_on, NewJob(task=definition.name, **self.resolved_options())
        return self._known_like[1]

    @property
    def own_options(self) -> Mapping[str, Any]:
        """What `using` has named."""
        return self._options

    def resolved_options(self) -> dict[str, Any]:
        """Of a new job: what `using`, the task, its groups and the app say, in this order."""
        options = {**self.definition.job_defaults, **self._job_options}
        if options.get("lease_seconds") is None:
            options["lease_seconds"] = self.definition.home.lease_seconds
        return options

    def _new_jobs(self, items: Iterable[Item]) -> AlikeJobs:
        if isinstance(items, str | bytes | Mapping):
            raise InvalidInput("items", f"must be several items, each a tuple or a mapping, got {type(items).__name__}")
        given = list(items)  # whatever the caller does to make them is not done inside a transaction of ours
        if len(given) > 1 and self._options.get("id") is not None:
            raise InvalidInput("id", f"names one job; there are {len(given)} items")
        dump = self.definition.arguments.dump

        def payload_at(index: int) -> dict[str, Any]:
            item = given[index]
            try:
                if isinstance(item, tuple):
                    return dump(item, {})
                if isinstance(item, Mapping):
                    return dump((), item)
            except InvalidInput as error:
                raise InvalidInput(f"items[{index}].{error.field}", error.rule) from error
            raise InvalidInput(
                f"items[{index}]",
                f"must be a tuple of arguments or a mapping of named ones, got {type(item).__name__}",
            )

        return AlikeJobs(self._like(), len(given), payload_at)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class _Called(Task[P, R]):
    """A task that is a Python function."""

    __name__: str

    def __init__(self, definition: Definition, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(definition, options)
        assert isinstance(definition.arguments, Arguments)
        self.function = definition.arguments.function
        for name in functools.WRAPPER_ASSIGNMENTS:  # to help() and the like it is the function that it wraps
            if hasattr(self.function, name):
                setattr(self, name, getattr(self.function, name))

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        arguments = self.definition.arguments
        assert isinstance(arguments, Arguments)
        if arguments.wants_context and not any(isinstance(value, Context) for value in args):
            context = current_or_none() or detached(self.name)
            args, kwargs = arguments.with_context(args, kwargs, context)
        return self.function(*args, **kwargs)


class FunctionTask(_Called[P, R]):
    """Calling it calls the function. A `Context` that is not handed in is the current job's, or one that is silent."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._run(args, kwargs)
        return result


class AsyncTask(_Called[P, R]):
    """The same for an `async def`."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self._run(args, kwargs)
        return coroutine


class CommandTask(Task[..., Any]):
    """A program; its payload is whatever it is given by name."""

    @property
    def command(self) -> Command:
        assert self.definition.command is not None
        return self.definition.command


AnyFunction = Callable[..., Any]
AnyTask = Task[..., Any]
