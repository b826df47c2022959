"""The log as one JSON document a line, for programs.

Structlog would do, and does for people (`logs.py`): it brings Rich with it, and to a worker that writes JSON they are a
tenth of its memory and of its start. The lines are those that structlog would write.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from holdfast.observe.redaction import redact


class JsonLines:
    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream = stream
        self._least = logging.getLevelNamesMapping()[level.upper()]
        self._lock = threading.Lock()

    def is_enabled_for(self, level: int) -> bool:
        return level >= self._least

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", logging.ERROR, event, fields)

    def _write(self, name: str, level: int, event: str, fields: dict[str, Any]) -> None:
        if level < self._least:
            return
        error = fields.pop("exc_info", None)
        line = {**fields, "event": event, "level": name, "timestamp": _now()}
        if error:
            line["exception"] = _stack(error)
        text = json.dumps(redact(None, name, line), default=str)
        with self._lock:
            print(text, file=self._stream, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _stack(error: Any) -> str:
    """Of an exception, or of what `sys.exc_info` says; true stands for the one that is being handled."""
    if isinstance(error, BaseException):
        found = traceback.format_exception(error)
    else:
        found = traceback.format_exception(*(error if isinstance(error, tuple) else sys.exc_info()))
    return "".join(found).rstrip("\n")
