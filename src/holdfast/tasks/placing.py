"""Where a result goes: into the job's row when it is small, else into an artifact, and the row gets its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.domain.artifacts import INLINE_RESULT_BYTES, MAX_SAVED_RESULT_BYTES, ArtifactRef
from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.domain.outcome import Failed, JobError, Outcome, Succeeded
from holdfast.domain.spec import encode_json

if TYPE_CHECKING:
    from holdfast.tasks.saving import Saves

_SMALL = (type(None), bool, int, float)
_MOST_PER_CHARACTER = 4  # bytes of UTF-8


def placed(outcome: Outcome, saves: Saves | None) -> Outcome:
    """The outcome of an attempt that returned; where its result cannot be placed, how it failed."""
    if not isinstance(outcome, Succeeded):
        return outcome
    try:
        return place(outcome, saves)
    except InvalidInput as error:
        return Failed(JobError("unstorable_result", str(error), retryable=False))
    except HoldfastError as error:
        return Failed(JobError(type(error).__name__, str(error)))


def place(outcome: Succeeded, saves: Saves | None) -> Succeeded:
    result = outcome.result
    if type(result) in _SMALL or saves is None:
        return outcome
    if type(result) is ArtifactRef:
        return _referred(result, saves)
    data = _too_large_for_a_row(result)
    if data is None:
        return outcome
    if len(data) > MAX_SAVED_RESULT_BYTES:
        raise InvalidInput(
            "result",
            f"is {len(data):,} bytes of JSON; the limit is {MAX_SAVED_RESULT_BYTES:,}: save it in parts with ctx.save",
        )
    return Succeeded(None, str(saves.save_result(data)))


def needs_a_file(outcome: Outcome) -> bool:
    """For who must not wait for a disk: a look at what `placed` will do."""
    if not isinstance(outcome, Succeeded) or type(outcome.result) in _SMALL:
        return False
    return type(outcome.result) is not ArtifactRef and _too_large_for_a_row(outcome.result) is not None


def _too_large_for_a_row(result: Any) -> bytes | None:
    text = encode_json(result)
    if len(text) * _MOST_PER_CHARACTER <= INLINE_RESULT_BYTES:
        return None
    data = text.encode()
    return data if len(data) > INLINE_RESULT_BYTES else None


def _referred(result: ArtifactRef, saves: Saves) -> Succeeded:
    if not saves.is_own(result):
        return Succeeded(str(result))
    if not saves.has(result):
        raise InvalidInput("result", f"{result} is being saved anew by a thread of the task; wait for it, then return")
    return Succeeded(None, str(result))
