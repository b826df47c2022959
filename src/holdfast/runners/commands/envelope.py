"""What a program may say on stdout, one JSON object a line: `{"holdfast": KIND, …}`. See docs/commands.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput
from holdfast.domain.outcome import JobError
from holdfast.domain.spec import check_json, encode_json

MAX_RESULT_BYTES = 4 * 1024 * 1024
MAX_TEXT_BYTES = 16 * 1024
LEVELS = ("debug", "info", "warning", "error", "critical")
KEY = b'"holdfast"'


@dataclass(frozen=True, slots=True)
class Result:
    value: Any


@dataclass(frozen=True, slots=True)
class Progress:
    done: float
    total: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Log:
    message: str
    level: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Error:
    error: JobError


@dataclass(frozen=True, slots=True)
class Snooze:
    delay_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """Meant as a message, but not one; the line is kept as output."""

    problem: str


Message = Result | Progress | Log | Error | Snooze | Cancel


def read(line: bytes) -> Message | Malformed | None:
    """The message on this line, or None when the line is plain output."""
    stripped = line.strip()
    if not stripped.startswith(b"{") or KEY not in stripped:
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return Malformed("the line is not valid JSON") if stripped[1:].lstrip().startswith(KEY) else None
    if "holdfast" not in value:
        return None
    try:
        return _message(value)
    except InvalidInput as problem:
        return Malformed(str(problem))


def _message(value: dict[str, Any]) -> Message:
    kind = value["holdfast"]
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise InvalidInput("holdfast", f"must be one of {', '.join(_READERS)}, got {json.dumps(kind)[:60]}")
    check_json(value, "message")
    return reader(value)


def _result(value: dict[str, Any]) -> Result:
    if "result" not in value:
        raise InvalidInput("result", "is required")
    size = len(encode_json(value["result"]).encode())
    if size > MAX_RESULT_BYTES:
        raise InvalidInput("result", f"is {size:,} bytes of JSON; the limit is {MAX_RESULT_BYTES:,}")
    return Result(value["result"])


def _progress(value: dict[str, Any]) -> Progress:
    done, total = _number(value, "done"), _number(value, "total", optional=True)
    assert done is not None
    return Progress(done, total, _text(value, "note", optional=True))


def _log(value: dict[str, Any]) -> Log:
    level = value.get("level", "info")
    if level not in LEVELS:
        raise InvalidInput("level", f"must be one of {', '.join(LEVELS)}")
    extra = {name: item for name, item in value.items() if name not in ("holdfast", "message", "level")}
    if len(encode_json(extra).encode()) > MAX_TEXT_BYTES:
        raise InvalidInput("log", f"the extra fields are more than {MAX_TEXT_BYTES:,} bytes of JSON")
    return Log(_text(value, "message") or "", level, extra)


def _error(value: dict[str, Any]) -> Error:
    retryable = value.get("retryable", True)
    if not isinstance(retryable, bool):
        raise InvalidInput("retryable", "must be true or false")
    code = _text(value, "code", optional=True) or "error"
    message, stack = _text(value, "message") or "", _text(value, "stack", optional=True)
    return Error(JobError(code, message, stack, retryable))


def _snooze(value: dict[str, Any]) -> Snooze:
    delay = _number(value, "delay_seconds")
    assert delay is not None
    return Snooze(durations.seconds(delay, "delay_seconds"), _text(value, "reason", optional=True) or "snoozed")


def _cancel(value: dict[str, Any]) -> Cancel:
    return Cancel(_text(value, "reason", optional=True) or "cancelled by the command")


def _number(value: dict[str, Any], name: str, *, optional: bool = False) -> float | None:
    number = value.get(name)
    if optional and number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidInput(name, "must be a number")
    return number


def _text(value: dict[str, Any], name: str, *, optional: bool = False) -> str | None:
    text = value.get(name)
    if optional and text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(name, "must be a string")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise InvalidInput(name, f"is more than {MAX_TEXT_BYTES:,} bytes")
    return text


_READERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "result": _result,
    "progress": _progress,
    "log": _log,
    "error": _error,
    "snooze": _snooze,
    "cancel": _cancel,
}
