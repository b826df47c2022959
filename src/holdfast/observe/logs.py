"""The log of a worker or a control plane: a logger of its own, and the subscriber that writes events to it.

For programs it is `json_lines`; for people it is structlog's, which is loaded for them alone. Structlog's global
configuration is not touched: it belongs to the user. Nor is the standard library's `logging`, but for what
`standard_logging` adds in processes that run no user code.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, cast

from holdfast.observe.json_lines import JsonLines
from holdfast.observe.redaction import redact
from holdfast.observe.sentences import ALWAYS_DEBUG, sentence

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

    from holdfast.domain.events import Event

LogFormat = Literal["pretty", "json"]


class Logger(Protocol):
    def is_enabled_for(self, level: int) -> bool: ...

    def debug(self, event: str, **fields: Any) -> None: ...

    def info(self, event: str, **fields: Any) -> None: ...

    def warning(self, event: str, **fields: Any) -> None: ...

    def error(self, event: str, **fields: Any) -> None: ...


def configure(format: LogFormat, level: str = "info", stream: TextIO | None = None) -> Logger:
    """A logger that writes to `stream`, standard error when it is None."""
    stream = sys.stderr if stream is None else stream
    if format == "json":
        return JsonLines(stream, level)
    import structlog

    # Every attribute is given: one left out would be read from the user's global configuration.
    proxy = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=_pretty(stream),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast(Logger, proxy.bind())


def _pretty(stream: TextIO) -> list[Processor]:
    import structlog

    colors = stream.isatty() and not os.environ.get("NO_COLOR")
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.processors.format_exc_info,
        redact,
        _without_controls,
        structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False),
    ]


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
# Marks that turn the direction of a text or begin a line, so that it reads otherwise than it is.
_CONTROLS |= {
    code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}


def _without_controls(_logger: object, _method: str, line: EventDict) -> EventDict:
    """An error text comes from a job; it must not steer the terminal of whoever reads the log."""
    return {name: value.translate(_CONTROLS) if isinstance(value, str) else value for name, value in line.items()}


@contextmanager
def standard_logging(logger: Logger) -> Iterator[None]:
    """Meanwhile, what libraries of this process say with `logging` (uvicorn, asyncio, our own transports) is written as
    our own lines are, and with their secrets hidden. For a process that is ours alone: user code runs in others."""
    handler = _Forwarding(logger)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Forwarding(logging.Handler):
    """What is below a warning is chatter of libraries; the root logger's own level keeps it away as well."""

    def __init__(self, logger: Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write = self._logger.error if record.levelno >= logging.ERROR else self._logger.warning
            write(_message(record), logger=record.name, exc_info=record.exc_info or None)
        except (OSError, ValueError):
            return  # as below


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # its arguments do not fit its text
        return str(record.msg)


class LogSubscriber:
    """Writes every event that is worth its level."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self.never = frozenset() if logger.is_enabled_for(10) else ALWAYS_DEBUG
        # Of a job and its attempt, where traces are on: lines about it say which trace it is in.
        self.trace_of: Callable[[str, int], str | None] | None = None

    def __call__(self, event: Event) -> None:
        if type(event) in self.never:
            return
        level, text, fields = sentence(event)
        if self.trace_of is not None and "attempt" in fields:
            trace_id = self.trace_of(fields["job_id"], fields["attempt"])
            fields |= {} if trace_id is None else {"trace_id": trace_id}
        try:
            getattr(self._logger, level)(text, **fields)
        except (OSError, ValueError):
            # Standard error is gone, full or closed. A worker that holds leases does not die of its log.
            return
