"""From a task and a context to an outcome: what the runner and the in-process worker share."""

from __future__ import annotations

import traceback
from contextvars import copy_context
from types import TracebackType
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.manifest import Kind
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Snoozed, Succeeded
from holdfast.tasks.arguments import InvalidArguments, decodable
from holdfast.tasks.blame import is_anothers, told_by
from holdfast.tasks.context import Context, entered
from holdfast.tasks.flow import RETRY_AFTER, Cancel, Permanent, RetryAfter, Snooze
from holdfast.tasks.results import result_to_json
from holdfast.tasks.retry_after import asked_for
from holdfast.tasks.task import AnyTask, AsyncTask, FunctionTask

__all__ = ["acall", "call", "outcome_of", "outcome_of_error", "result_to_json"]


def call(task: AnyTask, context: Context) -> Any:
    """Run the task here and return what it returns. An async one gets an event loop of its own."""
    if task.kind is Kind.ASYNC:
        return _run_coroutine(task, context)
    with entered(context):
        return _started(task, context)


async def acall(task: AnyTask, context: Context) -> Any:
    """The same on the running event loop; a function that blocks goes to a thread."""
    if task.kind is not Kind.ASYNC:
        import asyncio

        return await asyncio.to_thread(call, task, context)
    with entered(context):
        return await _started(task, context)


def outcome_of(task: AnyTask, value: Any) -> Outcome:
    """What a returned value means."""
    if isinstance(value, Snooze | Cancel | Permanent):
        return outcome_of_error(task, value)
    try:
        return Succeeded(result_to_json(value))
    except InvalidInput as error:
        message = f"{error}; return something that JSON can hold"
        return Failed(JobError("unserialisable_result", message, retryable=False))


def outcome_of_error(task: AnyTask, error: BaseException, context: Context | None = None) -> Outcome:
    """What a raised exception means; with its context also to the source of the job."""
    match error:
        case RetryAfter():
            return Snoozed(error.delay_seconds, error.reason, throttled=not _is_told(error, context))
        case Snooze():
            return Snoozed(error.delay_seconds, error.reason)
        case Cancel():
            return Cancelled(error.reason)
        case Permanent(error=BaseException() as cause):
            return Failed(_job_error(cause, retryable=False), told=_is_anothers(error, context))
        case Permanent():
            return Failed(_job_error(error, retryable=False), told=_is_anothers(error, context))
        case InvalidArguments():
            return Failed(JobError("invalid_arguments", str(error), retryable=False))
        case MemoryError():
            return Crashed(f"MemoryError: {_message(error)}".removesuffix(": "))
        case _ if context is not None and (seconds := _throttled_for(error, context)) is not None:
            return Snoozed(seconds, RETRY_AFTER, throttled=not _is_told(error, context))
        case _:
            again = not isinstance(error, task.no_retry)
            return Failed(_job_error(error, retryable=again), told=_is_anothers(error, context))


def _throttled_for(error: BaseException, context: Context) -> float | None:
    """An answer of 429 or 503 with Retry-After that some source was told of, or that the job's own is to be."""
    return asked_for(error) if context.job.source is not None or _is_told(error, context) else None


def _is_told(error: BaseException, context: Context | None) -> bool:
    return context is not None and told_by(context.job, error) is not None


def _is_anothers(error: BaseException, context: Context | None) -> bool:
    return context is not None and is_anothers(context.job, error)


def _started(task: AnyTask, context: Context) -> Any:
    assert isinstance(task, FunctionTask | AsyncTask)
    context.no_retry = task.no_retry
    arguments, named = task.arguments.load(decodable(context.job.payload), context)
    return task.function(*arguments, **named)


def _run_coroutine(task: AnyTask, context: Context) -> Any:
    import asyncio  # a module of plain functions never needs it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(acall(task, context))
    from concurrent.futures import ThreadPoolExecutor

    # A notebook has a loop running in this thread; a second one needs another thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, lambda: asyncio.run(acall(task, context))).result()


def _job_error(error: BaseException, *, retryable: bool) -> JobError:
    return JobError(type(error).__name__, _message(error), _stack(error), retryable)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the user's own may not even be printable
        return f"<{type(error).__name__} that cannot be printed>"


def _stack(error: BaseException) -> str | None:
    """The traceback without the frames through which we called the task."""
    if error.__traceback__ is None:
        return None
    try:
        return "".join(traceback.format_exception(type(error), error, _trimmed(error.__traceback__)))
    except Exception:
        return None


def _trimmed(frames: TracebackType) -> TracebackType | None:
    """What comes after the last frame of this file, which is the one that called the task."""
    inside: TracebackType | None = frames
    step: TracebackType | None = frames
    while step is not None:
        if step.tb_frame.f_code.co_filename == __file__:
            inside = step.tb_next
        step = step.tb_next
    return inside
