"""HTTP by hand over many sockets at once: as many clients as a test likes, in one thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.serve.grounds import WORKER
from tests.servers.waiting import DEADLINE_SECONDS


class Call:
    """One request on a connection of its own; its answer comes when it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def answer(self) -> tuple[int, Any]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), json.loads(body)

    def hang_up(self) -> None:
        self._writer.transport.abort()


async def call(url: str, token: str, verb: str, **body: Any) -> Call:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    content = json.dumps({"worker_id": "raw", **body}).encode()
    head = (
        f"POST {WORKER}/{verb} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    return Call(reader, writer)


@asynccontextmanager
async def calls(count: int, url: str, token: str, verb: str, **body: Any) -> AsyncIterator[list[Call]]:
    made = [await call(url, token, verb, **body) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.hang_up()


async def until(condition: Any, what: str, seconds: float = DEADLINE_SECONDS) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None
