"""Heads that two readers could read differently: each is refused, or read in the one way in which the bytes behind it
are the request's own body and never a second request. Sizes, slowness and depth are in `tests/serve/test_abuse.py`."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from holdfast.serve.options import Limits
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")
SMUGGLED = (
    b"POST /api/v1/queues/smuggled/pause HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n"
)
IN_CHUNKS = b"0\r\n\r\n"

# The lines that say how long the body is, and what comes before the second request in it.
PAIRS: dict[str, tuple[list[bytes], bytes]] = {
    "length and chunks": ([b"Content-Length: %d", b"Transfer-Encoding: chunked"], IN_CHUNKS),
    "chunks and length": ([b"Transfer-Encoding: chunked", b"Content-Length: %d"], IN_CHUNKS),
    "two encodings": ([b"Content-Length: %d", b"Transfer-Encoding: identity, chunked"], IN_CHUNKS),
    "chunks not last": ([b"Content-Length: %d", b"Transfer-Encoding: chunked, identity"], IN_CHUNKS),
    "encoding twice": ([b"Content-Length: %d", b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"], IN_CHUNKS),
    "unknown encoding": ([b"Content-Length: %d", b"Transfer-Encoding: xchunked"], IN_CHUNKS),
    "encoding in capitals": ([b"Content-Length: %d", b"TRANSFER-ENCODING: CHUNKED"], IN_CHUNKS),
    "space before the colon": ([b"Content-Length: %d", b"Transfer-Encoding : chunked"], IN_CHUNKS),
    "tab in the encoding": ([b"Content-Length: %d", b"Transfer-Encoding:\tchunked"], IN_CHUNKS),
    "vertical tab": ([b"Content-Length: %d", b"Transfer-Encoding: \x0bchunked"], IN_CHUNKS),
    "folded line": ([b"Content-Length: %d", b"X: y\r\n Transfer-Encoding: chunked"], IN_CHUNKS),
    "NUL in a header": ([b"Content-Length: %d", b"X: a\x00b"], b""),
    "carriage return in a header": ([b"Content-Length: %d", b"X: a\rTransfer-Encoding: chunked"], IN_CHUNKS),
    "line feed alone": ([b"Content-Length: %d", b"X: y\nTransfer-Encoding: chunked"], IN_CHUNKS),
    "two lengths": ([b"Content-Length: 0", b"Content-Length: %d"], b""),
    "two lengths, the other way": ([b"Content-Length: %d", b"Content-Length: 0"], b""),
    "lengths in one line": ([b"Content-Length: 0, %d"], b""),
    "a length with a sign": ([b"Content-Length: +%d"], b""),
    "a length in hexadecimal": ([b"Content-Length: 0x%x"], b""),
    "a length with a space in it": ([b"Content-Length: 0 %d"], b""),
    "a length with underscores": ([b"Content-Length: 1_%d"], b""),
    "a chunk's size with a sign": ([b"Transfer-Encoding: chunked"], b"+0\r\n\r\n"),
    "a chunk's size beyond all numbers": ([b"Transfer-Encoding: chunked"], b"f" * 20 + b"\r\n"),
    "a chunk's size with a line feed": ([b"Transfer-Encoding: chunked"], b"0;\nx\r\n\r\n"),
}


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    limits = Limits(head_seconds=60.0, body_seconds=60.0, requests_per_second=0)
    with serving(served_database, limits=limits) as served:
        yield served


def said(served: Served, raw: bytes) -> bytes:
    """Until the server ends the connection, which it does within its limits."""
    port = httpx.URL(served.url).port
    with socket.create_connection(("127.0.0.1", port or 0), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(raw)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except ConnectionResetError:
            pass  # it ended with some of ours unread
        return found


@on_sqlite
@pytest.mark.parametrize("name", PAIRS)
def test_no_second_request_hides_in_a_body(served: Served, name: str) -> None:
    lines, before = PAIRS[name]
    token = served.tokens["client"].encode()
    body = before + SMUGGLED % token
    length = [line.replace(b"%d", b"%d" % len(body)).replace(b"%x", b"%x" % len(body)) for line in lines]
    # Whoever asks has no token: in front of a proxy, the second request would be somebody else's.
    head = [b"POST /api/v1/jobs HTTP/1.1", b"Host: x", b"Content-Type: application/json", *length]
    answer = said(served, b"\r\n".join(head) + b"\r\n\r\n" + body)
    assert answer.count(b"HTTP/1.1 ") <= 1, answer
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401")), answer
    assert served.store.queue_settings("smuggled").paused_at is None


@on_sqlite
def test_the_second_request_would_work_by_itself(served: Served) -> None:
    token = served.tokens["client"].encode()
    raw = (SMUGGLED % token).replace(b"smuggled", b"asked-for").replace(b"Host: x", b"Host: x\r\nConnection: close")
    assert said(served, raw).startswith(b"HTTP/1.1 200")
    assert served.store.queue_settings("asked-for").paused_at is not None
