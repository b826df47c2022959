"""Routes that authorise before they read, and read strictly.

`StrictRoute` asks who it is first: nobody without a valid token can make the server read or parse a body. Then the
body must have arrived whole, in time and within its limit, as plain JSON; only then is it handed to the endpoint. A
body is never decompressed: a small one could become a huge one.

A body that is too large is read on for a while and thrown away before the refusal is sent: a client that is still
sending when the connection closes would never see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from holdfast.domain.errors import InvalidInput
from holdfast.domain.json_text import parse
from holdfast.serve.auth import Allowed
from holdfast.serve.options import Limits
from holdfast.serve.problems import Refused

# Paths whose body is a list of things, or holds one that may be large by itself.
BATCHES = ("/batch", "/heartbeats", "/reports", "/records", "/logs", "/announce", "/cache/put")
_CLOSE = {"Connection": "close"}
_THROWN_AWAY = 4  # times the limit
_PARSED_AT_ONCE = 64 * 1024


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        gates = tuple(_gates(self.dependant))
        has_body = self.body_field is not None
        is_batch = self.path.endswith(BATCHES)

        async def strictly(request: Request) -> Response:
            for gate in gates:
                await gate(request)
            if not has_body:
                return await handle(request)
            limits = request.app.state.plane.settings.limits
            raw = await read_body(request, limits.body_bytes if is_batch else limits.single_body_bytes, limits)
            return await handle(_Read(request, raw, await _parsed(request, raw, limits)))

        return strictly


def _gates(dependant: Dependant) -> list[Allowed]:
    own = [dependant.call] if isinstance(dependant.call, Allowed) else []
    return own + [gate for inner in dependant.dependencies for gate in _gates(inner)]


class _Read(Request):
    """The request with its body already read and parsed; the framework asks it for nothing else."""

    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = raw
        self._json = value


async def _parsed(request: Request, raw: bytes, limits: Limits) -> Any:
    if not raw:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidInput("Content-Type", f"must be application/json, got {kind[:100]!r}")
    if len(raw) <= _PARSED_AT_ONCE:
        return parse(raw, limits.body_depth)
    # Megabytes take tenths of a second, for which nobody's heartbeat shall wait.
    return await asyncio.to_thread(parse, raw, limits.body_depth)


async def read_body(request: Request, most: int, limits: Limits) -> bytes:
    """The whole body, within its limit and its time."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refused(415, "Compressed bodies are not read", "send the body as it is, without Content-Encoding")
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read(request, most)
    except TimeoutError:
        said = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refused(408, "The body did not arrive", said, _CLOSE) from None
    except ClientDisconnect:
        raise Refused(408, "The body did not arrive", "the connection ended before the body did", _CLOSE) from None


async def _read(request: Request, most: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most * _THROWN_AWAY:
        raise _too_large(most)
    body = bytearray()
    received = 0
    async for part in request.stream():
        received += len(part)
        if received > most * _THROWN_AWAY:
            break
        if received <= most:
            body += part
    if received > most:
        raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> Refused:
    said = f"the body of this request may have {most:,} bytes; send less, or in several requests"
    return Refused(413, "Too large", said, _CLOSE, limit_bytes=most)
