"""Raw sockets that keep to no protocol: each is ended in time, memory stays bounded, and the next request works."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from holdfast.domain.tokens import NewToken, Scope
from holdfast.throwaway.process import ServerProcess
from holdfast.wiring.sql import open_store
from tests.serve import http
from tests.serve.abused import LIMITS
from tests.serve.grounds import bearer, serving
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

MIB = 1024 * 1024
MOST_GROWTH = 64 * MIB  # of the process, over all of this module
DEEP = b"[" * 1_000_000


class Abused:
    def __init__(self, url: str, token: str, pid: int) -> None:
        self.url = url
        self.token = token
        self.process = psutil.Process(pid)

    @property
    def works(self) -> bool:
        """Whether an ordinary request is answered."""
        try:
            return http.get(f"{self.url}/api/v1/queues", headers=bearer(self.token)).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    def connect(self) -> socket.socket:
        parsed = httpx.URL(self.url)
        assert parsed.port is not None
        return socket.create_connection((parsed.host, parsed.port), timeout=DEADLINE_SECONDS)

    def head(self, *lines: str, path: str = "/api/v1/jobs", token: str | None = None) -> bytes:
        given = [f"Authorization: Bearer {token or self.token}", "Host: x", "Content-Type: application/json", *lines]
        return ("\r\n".join([f"POST {path} HTTP/1.1", *given]) + "\r\n\r\n").encode()

    def said(self, *parts: bytes) -> bytes:
        """What comes back for these bytes until the server ends the connection."""
        with self.connect() as connection:
            for part in parts:
                try:
                    connection.sendall(part)
                except (BrokenPipeError, ConnectionResetError):
                    break  # it has heard enough
            return _until_end(connection)


def _until_end(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass  # it ended with some of ours unread
    except TimeoutError:
        found = b"still open: " + found
    return found


@pytest.fixture(scope="module")
def abused(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abused]:
    folder = tmp_path_factory.mktemp("abused")
    shutil.copy(migrated_file, folder / "holdfast.db")
    url = f"sqlite:///{folder / 'holdfast.db'}"
    store = open_store(url)
    token = store.create_token(NewToken("client", (Scope.CLIENT, Scope.WORKER))).text
    log = folder / "log"
    command = [sys.executable, "-m", "tests.serve.abused", url]
    process = ServerProcess(command, cwd=Path.cwd(), log=log, account=None, death_signal=signal.SIGKILL)
    try:
        process.wait_ready(lambda: "http://" in log.read_text(), timeout=DEADLINE_SECONDS)
        found = re.search(r"http://\S+", log.read_text())
        assert found is not None
        abused = Abused(found[0], token, process.pid)
        print(f"control plane {process.pid} at {abused.url}, Python {sys.version.split()[0]}")
        assert abused.works
        before = abused.memory
        yield abused
        grown = abused.memory - before
        print(f"memory before {before // MIB} MiB, grown by {grown / MIB:.1f} MiB")
        assert grown < MOST_GROWTH
        assert store.counts() == {}, "nothing of all this was a job"
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.stop(signal.SIGTERM)
        store.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abused]:
    """A control plane that does not wait long for the rest of a request, and takes few connections."""
    limits = dataclasses.replace(LIMITS, body_seconds=0.5, head_seconds=0.5, connections=len(UNFINISHED))
    with serving(f"sqlite:///{tmp_path_factory.mktemp('hasty') / 'holdfast.db'}", limits=limits) as served:
        yield Abused(served.url, served.new_token("client", "worker"), os.getpid())
        assert served.store.counts() == {}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


CHUNKED = "Transfer-Encoding: chunked"
JOB = b'{"task": "t", "payload": {}'

# What is sent, and with what the answer begins; b"" where the connection may just end.
CASES: dict[str, tuple[Callable[[Abused], list[bytes]], bytes]] = {
    "chunks without number": (lambda a: [a.head(CHUNKED), *[chunk(b" " * 65536)] * 400], b""),
    "a length that is no number": (lambda a: [a.head("Content-Length: ten"), JOB], b"HTTP/1.1 400"),
    "a negative length": (lambda a: [a.head("Content-Length: -1"), JOB], b"HTTP/1.1 400"),
    "a length beyond all numbers": (lambda a: [a.head("Content-Length: " + "9" * 30)], b"HTTP/1.1 400"),
    "a huge length": (lambda a: [a.head("Content-Length: 999999999999"), JOB], b"HTTP/1.1 413"),
    "two lengths": (lambda a: [a.head("Content-Length: 5", "Content-Length: 6"), JOB], b"HTTP/1.1 400"),
    "length and chunks": (lambda a: [a.head("Content-Length: 5", CHUNKED), JOB], b"HTTP/1.1 400"),
    "a chunk of no size": (lambda a: [a.head(CHUNKED), b"zz\r\nx\r\n"], b"HTTP/1.1 400"),
    "no HTTP": (lambda _: [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10], b"HTTP/1.1 400"),
    "a huge header": (lambda a: [a.head()[:-2] + b"X: " + b"x" * 100_000, *[b"x" * 65536] * 200], b""),
    "a header too large": (lambda a: [a.head()[:-2] + b"X: ", b"x" * 32_000, b"x" * 40_000], b"HTTP/1.1 431"),
    "a header too large, in one piece": (
        lambda a: [a.head()[:-2] + b"X: " + b"x" * 120_000 + b"\r\nContent-Length: 0\r\n\r\n"],
        b"HTTP/1.1 431",
    ),
    "a path too large, in one piece": (
        lambda _: [b"GET /healthz?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"],
        b"HTTP/1.1 431",
    ),
    "a huge path": (lambda _: [b"GET /" + b"x" * 100_000, *[b"x" * 65536] * 200], b""),
    "many headers": (lambda a: [a.head()[:-2] + b"X: y\r\n" * 40_000, *[b"X: y\r\n" * 10_000] * 100], b""),
    "invalid UTF-8": (
        lambda a: [a.head("Content-Length: 12", "Connection: close"), b'{"task":"\xff"}'],
        b"HTTP/1.1 422",
    ),
    "deep JSON": (
        lambda a: [
            a.head(f"Content-Length: {len(DEEP)}", "Connection: close", path="/api/v1/jobs/batch"),
            DEEP,
        ],
        b"HTTP/1.1 422",
    ),
    "a compressed body": (
        lambda a: [a.head("Content-Length: 10", "Content-Encoding: gzip", "Connection: close"), b"0" * 10],
        b"HTTP/1.1 415",
    ),
    "garbage behind a request": (
        lambda _: [f"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n\x00garbage{'x' * 5000}".encode()],
        b"HTTP/1.1 200",
    ),
    "requests without number": (lambda _: [b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000], b"HTTP/1.1 "),
    "an upgrade, and what it is for": (
        lambda _: [
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"\x81\x05",
        ],
        b"HTTP/1.1 200",
    ),
}
# What the server ends because the rest does not arrive in time.
UNFINISHED: dict[str, Callable[[Abused], list[bytes]]] = {
    "a body that never ends": lambda a: [a.head("Content-Length: 100"), JOB],
    "chunks that never end": lambda a: [a.head(CHUNKED), chunk(JOB)],
    "half a head": lambda a: [a.head()[:-10]],
    "nothing at all": lambda _: [],
    "empty lines": lambda _: [b"\r\n" * 10],
}


def test_whatever_is_sent_the_connection_ends_and_the_next_request_works(abused: Abused) -> None:
    with ThreadPoolExecutor(len(CASES)) as pool:
        sent = {name: pool.submit(abused.said, *parts(abused)) for name, (parts, _begins) in CASES.items()}
        assert abused.works
    said = {name: sending.result() for name, sending in sent.items()}
    wrong = {
        name: text[:200]
        for name, text in said.items()
        if not text.startswith(CASES[name][1]) or text.startswith(b"still open")
    }
    assert wrong == {}
    assert abused.works


def test_a_request_that_does_not_arrive_in_time_ends_with_408_and_leaves_room_for_others(hasty: Abused) -> None:
    """As many at once as there may be connections."""
    with ThreadPoolExecutor(len(UNFINISHED)) as pool:
        said = dict(
            zip(UNFINISHED, pool.map(lambda parts: hasty.said(*parts(hasty)), UNFINISHED.values()), strict=True)
        )
    assert {name: text[:12] for name, text in said.items()} == dict.fromkeys(UNFINISHED, b"HTTP/1.1 408")
    wait_until(lambda: hasty.works, what="there is room for another request")


def test_a_body_for_nobody_is_not_read_to_its_end(hasty: Abused) -> None:
    parts = [hasty.head("Content-Length: 900000000", token="hf_nobody"), *[b"x" * 65536] * 20]
    # A server that is held up for half a second may close the connection before it has read the head.
    said = (hasty.said(*parts) for _ in range(20))
    assert any(text.startswith(b"HTTP/1.1 401") for text in said)


def test_a_bomb_is_never_unpacked(abused: Abused) -> None:
    bomb = gzip.compress(b" " * (64 * MIB), 6)
    assert len(bomb) < LIMITS.single_body_bytes
    before = abused.memory
    for encoding in ("gzip", "GZip", "deflate", "br", "identity, gzip"):
        head = abused.head(f"Content-Length: {len(bomb)}", f"Content-Encoding: {encoding}", "Connection: close")
        assert abused.said(head, bomb).startswith(b"HTTP/1.1 415")
    as_it_is = abused.head(f"Content-Length: {len(bomb)}", "Connection: close")
    assert abused.said(as_it_is, bomb).startswith(b"HTTP/1.1 422")
    assert abused.memory - before < 32 * MIB


def test_many_slow_connections_leave_room_for_others(abused: Abused) -> None:
    """As many as there may be, none of which says anything whole: one more is refused, and later there is room."""
    halves = (b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\n", abused.head("Content-Length: 9"))
    with ExitStack() as stack:
        slow = [stack.enter_context(abused.connect()) for _ in range(LIMITS.connections)]
        for number, connection in enumerate(slow):
            connection.sendall(halves[number % 2])
        assert abused.said()[:12] == b"HTTP/1.1 503"
    wait_until(lambda: abused.works, what="there is room for another request")


def test_an_answer_that_is_under_way_is_given_before_garbage_ends_the_connection(abused: Abused) -> None:
    for wait_ms in (300, 3_000, 30_000):  # on a slow machine the garbage may arrive after a response that came soon
        waiting = b'{"worker_id": "w", "streams": null, "max_wait_ms": %d}' % wait_ms
        head = abused.head(f"Content-Length: {len(waiting)}", path="/internal/worker/claim")
        said = abused.said(head + waiting, b"\x00\x01 this is no request\r\n\r\n")
        if said.count(b"HTTP/1.1") == 1:
            break
    assert said.startswith(b"HTTP/1.1 200")
    assert b'"claimed":false' in said
    assert said.count(b"HTTP/1.1") == 1
