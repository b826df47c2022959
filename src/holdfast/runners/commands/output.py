"""Sorts what a program prints into messages, output lines and the end of stderr that goes into an error text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.domain.logs import Stream
from holdfast.runners.commands import envelope
from holdfast.runners.commands.envelope import Cancel, Error, Log, Malformed, Progress, Result, Snooze
from holdfast.runners.commands.lines import Line, LineSplitter

ERROR_TAIL_BYTES = 4 * 1024

Say = Callable[[Stream, str, str | None, dict[str, Any]], bool]  # False: the log is full


class Output:
    """`say` stores a line, `progress` reports it; both at once, while the program runs."""

    def __init__(self, say: Say, progress: Callable[[Progress], None]) -> None:
        self._say = say
        self._progress = progress
        self._full = False
        self._tail = bytearray()
        self.decision: Result | Snooze | Cancel | None = None  # the last one counts
        self.error: Error | None = None
        self.stdout = LineSplitter(self._take_stdout, self._wants_stdout)
        self.stderr = LineSplitter(self._take_stderr, lambda _lines: not self._full, messages=False)

    def feed_stderr(self, chunk: bytes) -> None:
        self._tail += chunk[-ERROR_TAIL_BYTES:]
        del self._tail[:-ERROR_TAIL_BYTES]
        self.stderr.feed(chunk)

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()

    def error_tail(self) -> str:
        return self._tail.decode(errors="replace").replace("\0", "\ufffd").strip()

    def _wants_stdout(self, lines: bytes) -> bool:
        return not self._full or envelope.KEY in lines

    def _take_stdout(self, line: Line) -> None:
        message = _too_long(line) if line.bytes_cut else envelope.read(line.data)
        match message:
            case None:
                self._keep(Stream.STDOUT, line)
            case Malformed(problem=problem):
                self._keep(Stream.STDOUT, line)
                self._say(Stream.LOG, f"a message on stdout was not understood: {problem}", "warning", {})
            case Progress():
                self._progress(message)
            case Log(message=text, level=level, fields=fields):
                self._say(Stream.LOG, text, level, fields)
            case Error():
                self.error = message
            case Result() | Snooze() | Cancel():
                self.decision = message

    def _take_stderr(self, line: Line) -> None:
        self._keep(Stream.STDERR, line)

    def _keep(self, stream: Stream, line: Line) -> None:
        if not self._full:
            self._full = not self._say(stream, line.text(), None, {})


def _too_long(line: Line) -> Malformed | None:
    is_meant = line.data.lstrip()[:1] == b"{" and envelope.KEY in line.data[:1024]
    return Malformed(f"the line is longer than {len(line.data):,} bytes") if is_meant else None
