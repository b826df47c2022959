"""uvicorn's HTTP protocol with the bounds that it leaves to a proxy in front: this server may have none.

- A request's head must be whole within `head_seconds` and `head_bytes`, also on a connection that has sent nothing.
- Once the answer has been given, what is left of the request's body must be over within the same time.
- There are at most `connections` of them, and on each at most a few requests that wait for the one before them.
- A request that cannot be read does not cost an earlier one on the same connection its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.serve.options import Limits

MOST_PIPELINED = 16
_TOO_LARGE = (b"431 Request Header Fields Too Large", b"The head of the request is too large.")


class BoundedProtocol(HttpToolsProtocol):
    """Bound by `limits`, which a subclass sets: uvicorn makes one for each connection, from the class alone."""

    limits = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: RequestResponseCycle | None = None
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0  # read while the head was not whole
        self._field_bytes = 0  # of its parts that are
        self._is_over = False  # nothing more is read

    # connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(b"503 Service Unavailable", b"Too many connections.")
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                self._end(*_TOO_LARGE)
        if self._deadline is None and not self._in_body and not self._is_answering:
            self._set_deadline()  # some bytes that begin no request

    # parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._field_bytes = 0
        if self._deadline is None:
            self._set_deadline()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the head, or behind a body in chunks."""
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Also a head that came in one piece, of which nothing was ever waited for."""
        self._field_bytes += size
        if self._field_bytes > self.limits.head_bytes:
            raise ValueError("the head is too large")  # the parser reads no further, and asks for an answer

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._clear_deadline()
        super().on_headers_complete()
        if len(self.pipeline) > MOST_PIPELINED:
            raise ValueError("too many requests wait on one connection")  # which the parser makes a 400 of

    def on_message_complete(self) -> None:
        self._in_body = False
        self._clear_deadline()
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """The parser reads no further; the request itself is answered as if it had not asked."""
        self._end(b"400 Bad Request", b"There is no other protocol here.")

    # answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self._is_answering and not self.transport.is_closing():
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        if self._field_bytes > self.limits.head_bytes:
            self._end(*_TOO_LARGE)
        else:
            self._end(b"400 Bad Request", msg.encode())

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _set_deadline(self) -> None:
        self._clear_deadline()
        if not self._is_over:
            self._deadline = self.loop.call_later(self.limits.head_seconds, self._too_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self._end(b"408 Request Timeout", b"The request did not arrive in time.")

    def _end(self, status: bytes, text: bytes) -> None:
        """Read no more. An earlier request that is being answered is answered first, and then the connection ends."""
        self._is_over = True
        self._clear_deadline()
        self.pipeline.clear()
        is_its_own = self._in_body and self.cycle is self._answering
        if self._answering is not None and self._is_answering and not is_its_own:
            self._answering.keep_alive = False
            return
        if not self.transport.is_closing():
            if not (is_its_own and self._answering is not None and self._answering.response_started):
                self.transport.write(_answer(status, text))
            self.transport.close()


def _answer(status: bytes, text: bytes) -> bytes:
    head = (
        b"HTTP/1.1 " + status,
        b"content-type: text/plain; charset=utf-8",
        b"content-length: %d" % len(text),
        b"connection: close",
    )
    return b"\r\n".join(head) + b"\r\n\r\n" + text
