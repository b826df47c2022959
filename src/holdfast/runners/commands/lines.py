"""Bytes in, lines out, in flat memory whatever a program prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MAX_LINE_BYTES = 16 * 1024 * 1024  # room for a result of 4 MiB written with \uXXXX escapes
KEPT_LINE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """`bytes_cut` says how much of an over-long line is missing at its end."""

    data: bytes
    bytes_cut: int = 0

    def text(self) -> str:
        """What is stored: undecodable bytes and NUL, which Postgres cannot hold, are replaced; the end may be cut."""
        kept = self.data[:KEPT_LINE_BYTES].decode(errors="replace").replace("\x00", "\ufffd")
        cut = self.bytes_cut + max(0, len(self.data) - KEPT_LINE_BYTES)
        return f"{kept} … [{cut:,} more bytes of this line cut]" if cut else kept


class LineSplitter:
    """Splits a stream into lines and hands each one to `take`.

    `wants(chunk)` may say that a stretch of complete lines is of no interest: a program that prints a gigabyte is then
    read at the speed of the pipe, not at the speed of Python. With `messages`, a line that may be one is kept whole; of
    any other no more is kept than is stored.
    """

    def __init__(self, take: Callable[[Line], None], wants: Callable[[bytes], bool], *, messages: bool = True) -> None:
        self._take = take
        self._wants = wants
        self._messages = messages
        self._rest = bytearray()
        self._cut = 0

    def feed(self, chunk: bytes) -> None:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            first, separator, others = head.partition(b"\n")
            self._append(first)
            self._end_line()
            if separator and self._wants(others):
                for data in others.split(b"\n"):
                    self._take(Line(data))
        self._append(tail)

    def close(self) -> None:
        """The stream ended: an unfinished line is a line."""
        if self._rest:
            self._end_line()

    def _append(self, data: bytes) -> None:
        room = self._most(bytes(self._rest[:1024]) + data[:1024]) - len(self._rest)
        self._rest += data[:room]
        self._cut += max(0, len(data) - room)

    def _most(self, beginning: bytes) -> int:
        return MAX_LINE_BYTES if self._messages and beginning.lstrip()[:1] in (b"", b"{") else KEPT_LINE_BYTES

    def _end_line(self) -> None:
        line = Line(bytes(self._rest), self._cut)
        self._rest.clear()
        self._cut = 0
        self._take(line)
