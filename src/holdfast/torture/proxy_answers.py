"""HTTP responses that the proxy sends in place of the server, as an ingress, a firewall or a gateway does.

A request is either kept from the server, or carried out while its response is replaced. Requests of one connection
follow each other, so a boundary is where the client sends again after the server has answered.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProxyResponse:
    """A response without Holdfast's problem body."""

    status: int
    body: bytes = b"<html><body><h1>sorry</h1></body></html>"
    content_type: str = "text/html"
    headers: str = ""  # further ones, each with its end of line

    def response(self, *, closes: bool) -> bytes:
        phrase = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else "Unknown"
        head = (
            f"HTTP/1.1 {self.status} {phrase}\r\nContent-Type: {self.content_type}\r\n{self.headers}"
            f"Content-Length: {len(self.body)}\r\nConnection: {'close' if closes else 'keep-alive'}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass(frozen=True, slots=True)
class Answers:
    """The proxy answers a share of the requests whose first line contains one of `paths`, or any without `paths`."""

    pages: Sequence[ProxyResponse]
    chance: float = 0.5
    carried_out: float = 0.0  # the share of these that reaches the server first
    paths: Sequence[bytes] = ()

    def page(self, request: bytes, chosen: random.Random) -> ProxyResponse | None:
        line = request.partition(b"\r\n")[0]
        if self.paths and not any(path in line for path in self.paths):
            return None
        return chosen.choice(list(self.pages)) if chosen.random() < self.chance else None


class Exchanges:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._is_open = False  # a request is under way
        self._page: ProxyResponse | None = None
        self._kept: bytearray | None = None  # a request that the server does not get

    def takes_request(self, data: bytes, answers: Answers | None, chosen: random.Random) -> bool:
        """Whether this part of a request is kept from the server."""
        if self._kept is not None:
            self._kept += data
            return True
        if self._is_open:
            return False
        self._is_open = True
        self._page = None if answers is None else answers.page(data, chosen)
        if answers is None or self._page is None or chosen.random() < answers.carried_out:
            return False
        self._kept = bytearray(data)
        return True

    def response(self) -> bytes | None:
        """The response to a request that was kept, once all of it has arrived."""
        if self._page is None or self._kept is None or not _is_whole(bytes(self._kept)):
            return None
        page, self._page, self._kept, self._is_open = self._page, None, None, False
        return page.response(closes=False)

    def replacement(self) -> bytes | None:
        """What the client gets in place of what the server begins to send."""
        self._is_open = False
        page, self._page = self._page, None
        return None if page is None else page.response(closes=True)


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(_HEAD_END)
    length = _LENGTH.search(head)
    return bool(end) and len(body) >= (0 if length is None else int(length[1]))
