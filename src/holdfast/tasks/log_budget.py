"""How much one attempt may say: lines are numbered, and after the last one allowed a marker says that more was cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.names import storable_text
from holdfast.domain.spec import check_json, encode_json
from holdfast.forks import fork_safe

MAX_LINES = 10_000
MAX_BYTES = 1024 * 1024
MAX_LINE = 64 * 1024 - 100  # characters; with the remark about its end a line fits what a store takes


def _now() -> datetime:
    return datetime.now(UTC)


class LogBudget:
    """Turns what was said into numbered lines. Any thread may call it."""

    def __init__(
        self,
        job_id: str,
        attempt: int,
        *,
        max_lines: int = MAX_LINES,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._job_id = job_id
        self._attempt = attempt
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._clock = clock
        # A signal handler or a finaliser that prints may run while its own thread is in here.
        self._lock = fork_safe(RLock())
        self._number = 0
        self._bytes = 0
        # True once the marker has been given out: nothing that is said from here on is kept. A plain attribute, because
        # it is asked for every print of a job that goes on printing.
        self.spent = False

    def lines(
        self, stream: Stream, message: str, level: str | None = None, fields: dict[str, Any] | None = None
    ) -> list[LogLine]:
        """The line to keep; with the marker behind it, or the marker alone, or nothing, when the budget is used up."""
        if self.spent:
            return []
        text = _storable(message if len(message) <= MAX_LINE else _cut(message))
        extra = _as_json(fields or {})
        with self._lock:
            return self._take(stream, text, level, extra)

    def _take(self, stream: Stream, text: str, level: str | None, fields: dict[str, Any]) -> list[LogLine]:
        if self.spent:
            return []
        if self._number >= self._max_lines:
            return [self._marker(f"{self._max_lines:,} lines")]
        left = self._max_bytes - self._bytes - (len(encode_json(fields).encode()) if fields else 0)
        encoded = text.encode()
        if len(encoded) <= left:
            self._bytes = self._max_bytes - left + len(encoded)
            return [self._line(stream, text, level, fields)]
        # The beginning of a huge line often says what it is about.
        start = encoded[: max(left, 0)].decode(errors="ignore")
        kept = [self._line(stream, start, level, fields)] if start else []
        return [*kept, self._marker(f"{self._max_bytes:,} bytes of text")]

    def _line(self, stream: Stream, text: str, level: str | None, fields: dict[str, Any]) -> LogLine:
        self._number += 1
        return LogLine(self._job_id, self._attempt, self._number, self._clock(), stream, text, level, fields)

    def _marker(self, limit: str) -> LogLine:
        self.spent = True
        text = f"cut here: an attempt keeps at most {limit}; what it said after this was not kept"
        return self._line(Stream.LOG, text, "warning", {"truncated": True})


def with_remark(text: str, cut: int) -> str:
    """The start of a line, and how much of it is missing."""
    return f"{text} … [{cut:,} more characters of this line cut]" if cut else text


def _cut(text: str) -> str:
    # Twice is not cut again: what comes with a remark already is a little longer than a line may be.
    return text if len(text) <= MAX_LINE + 100 else with_remark(text[:MAX_LINE], len(text) - MAX_LINE)


def _storable(text: str) -> str:
    return text if text.isascii() and "\x00" not in text else storable_text(text, len(text))


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """A log line never fails a job: a value that JSON cannot hold is kept as its text."""
    return {_storable(name): _value_as_json(value) for name, value in fields.items()}


def _value_as_json(value: Any) -> Any:
    try:
        check_json(value, "fields")
    except InvalidInput:
        return _storable(_text(value))
    return value


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be printed>"
