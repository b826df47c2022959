"""What was written to a stream, cut into lines: pieces come as user code writes them, lines leave when they end.

A carriage return goes back to the start of the line, as on a terminal: what is written next replaces what stands
there. So a progress bar that is drawn a thousand times is one line, in its last state.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.tasks.log_budget import MAX_LINE, with_remark


class PartialLine:
    """The line that one thread of one job is writing to one stream."""

    __slots__ = ("_cut", "_is_overwritten", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._cut = 0
        self._is_overwritten = False

    def feed(self, text: str) -> Iterator[str]:
        """The lines that end in this piece, one by one: whoever has enough of them stops asking."""
        start = 0
        while (end := text.find("\n", start)) >= 0:
            self._append(text[start:end])
            yield self._taken()
            start = end + 1
        self._append(text[start:])

    def rest(self) -> str | None:
        """What has no end yet, as a line; None when there is nothing."""
        return self._taken() if self._text else None

    def _append(self, piece: str) -> None:
        first, *others = piece.split("\r")
        self._add(first)
        for state in others:
            self._is_overwritten = True
            self._add(state)

    def _add(self, piece: str) -> None:
        if not piece:  # "\r\n", or a bar that ends with "\r": what stands there stays until something replaces it
            return
        if self._is_overwritten:
            self._reset()
        room = MAX_LINE - len(self._text)
        self._text += piece[:room]
        self._cut += max(0, len(piece) - room)

    def _taken(self) -> str:
        text = with_remark(self._text, self._cut)
        self._reset()
        return text

    def _reset(self) -> None:
        self._text = ""
        self._cut = 0
        self._is_overwritten = False
