"""One POST to one of the addresses that were judged, with an end to everything: how long it takes and what is read.

`http.client` is handed a connection that is open already, so nothing here looks up a name, heeds a proxy of the
environment or follows a redirect. TLS is checked for the name in the URL, not for the address.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from holdfast.domain.webhook import Target
from holdfast.webhooks.addresses import Address

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
MOST_ADDRESSES = 4  # of a host with many, this many are tried
MOST_ANSWER_BYTES = 4 * 1024


class Unreachable(Exception):
    """Nobody answered, or not in time, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    reason: str
    retry_after: str | None


def post(
    target: Target,
    addresses: Sequence[Address],
    headers: Mapping[str, str],
    body: bytes,
    *,
    total_seconds: float = TOTAL_SECONDS,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    deadline = time.monotonic() + total_seconds
    try:
        with _connected(target, addresses, deadline, tls) as connection:
            return _exchange(target, _Wire(connection, deadline), headers, body)
    except TimeoutError:
        raise Unreachable(f"{target.host} did not answer within {total_seconds:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{target.host}: {type(error).__name__}: {error}") from None


def _connected(
    target: Target, addresses: Sequence[Address], deadline: float, tls: ssl.SSLContext | None
) -> socket.socket:
    for number, address in enumerate(addresses[:MOST_ADDRESSES], 1):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(min(CONNECT_SECONDS, _left(deadline)))
            connection.connect((str(address), target.port))
            if not target.is_secure:
                return connection
            return (tls or _default_tls()).wrap_socket(connection, server_hostname=target.host)
        except OSError:
            connection.close()
            if number == len(addresses[:MOST_ADDRESSES]):
                raise
    raise OSError("there is no address to connect to")


@cache
def _default_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _exchange(target: Target, wire: _Wire, headers: Mapping[str, str], body: bytes) -> Answer:
    connection = http.client.HTTPConnection(target.host, target.port)
    if target.is_secure:
        connection.default_port = http.client.HTTPS_PORT  # so that Host names the port only where it must
    connection.auto_open = 0  # the one connection there is
    connection.sock = wire
    connection.request("POST", target.path, body, {**headers, "Connection": "close"})
    with connection.getresponse() as response:
        # Read a little, so that a receiver which is still talking is not cut off; and not kept, because who may name a
        # URL must not be able to read what lies behind it.
        with suppress(OSError, http.client.HTTPException):
            response.read(MOST_ANSWER_BYTES)
        return Answer(response.status, response.reason, response.getheader("Retry-After"))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Wire:
    """What `http.client` needs of a socket; each step may take only what is left of the time. A socket's own limit is
    for one step: a receiver that sends a byte now and then would be listened to for ever."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            self._connection.settimeout(_left(self._deadline))
            rest = rest[self._connection.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._connection, self._deadline))

    def close(self) -> None:
        """It is closed by whoever opened it."""


class _Reader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline))
        return self._connection.recv_into(buffer)
