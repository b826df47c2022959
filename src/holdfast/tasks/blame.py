"""Which source an error is told to: that of the innermost block which it leaves, and no other.

That a source was told is noted in the error itself, so that nothing keeps it alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.domain.errors import LeaseLost, StoreUnavailable
from holdfast.domain.sources import End
from holdfast.tasks.flow import Cancel, Permanent, RetryAfter, Snooze
from holdfast.tasks.retry_after import asked_for

_TOLD = "_holdfast_told"
_DEEPEST = 10


class Attempt(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def source(self) -> str | None: ...


def note_told(job: Attempt, error: BaseException, source: str, number: int) -> None:
    """The entry of this number has told its source of the error: that it failed, or that it asks to be left alone."""
    error.__dict__[_TOLD] = (job.id, job.attempt, source, number)


def told_by(job: Attempt, error: BaseException) -> tuple[str, int] | None:
    """Source and number of the entry of this attempt that has told of it."""
    job_id, attempt, source, number = error.__dict__.get(_TOLD) or ("", 0, "", 0)
    return (source, number) if (job_id, attempt) == (job.id, job.attempt) else None


def is_anothers(job: Attempt, error: BaseException) -> bool:
    """Another source than the job's own was told of it."""
    return _was_told(job, error, lambda source, _number: source != job.source)


def _was_told(job: Attempt, error: BaseException, fits: Callable[[str, int], bool], depth: int = _DEEPEST) -> bool:
    """An entry that fits has told of it; or of what caused it, or of all that it is a group of."""
    if (told := told_by(job, error)) is not None:
        return fits(*told)
    if depth == 0:
        return False
    if isinstance(error, BaseExceptionGroup):
        return all(_was_told(job, one, fits, depth - 1) for one in error.exceptions)
    cause = error.__cause__
    if isinstance(error, Permanent) and isinstance(error.error, BaseException):
        cause = error.error
    return cause is not None and _was_told(job, cause, fits, depth - 1)


def ending(
    job: Attempt, error: BaseException | None, source: str, number: int, no_retry: tuple[type[BaseException], ...]
) -> tuple[End, str, bool, float]:
    """What the end of a block says about its source: how, and of a failure its code and whether trying again helps."""

    def is_elsewhere(told: str, by: int) -> bool:
        """Of another source; or of this one, but inside the block in question: an error may also be raised twice."""
        return told != source or by > number

    match error:
        case None:
            return End.SUCCEEDED, "", True, 0.0
        case _ if _was_told(job, error, is_elsewhere):
            return End.NOTHING, "", True, 0.0
        case RetryAfter():
            return End.THROTTLED, "", True, error.delay_seconds
        case Snooze() | Cancel() | LeaseLost() | StoreUnavailable() | MemoryError():
            return End.NOTHING, "", True, 0.0
        case Permanent(error=BaseException() as cause):
            return End.FAILED, type(cause).__name__, False, 0.0
        case Permanent():
            return End.FAILED, type(error).__name__, False, 0.0
        case Exception():
            if (seconds := asked_for(error)) is not None:
                return End.THROTTLED, "", True, seconds
            return End.FAILED, type(error).__name__, not isinstance(error, no_retry), 0.0
        case _:  # KeyboardInterrupt, CancelledError and their like
            return End.NOTHING, "", True, 0.0
