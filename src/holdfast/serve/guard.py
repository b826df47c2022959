"""All that stands between the outside and the routes, put on an app in one call."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.serve import api_tokens, links
from holdfast.serve.auth import Authentication
from holdfast.serve.plane import Plane
from holdfast.serve.problems import problem
from holdfast.serve.refusals import Minutes, RefusalRecord

# Answers are about this moment and this token: nobody in between may keep them, guess their type or frame them.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer` a browser would send `Origin: null` with our own forms, and could not be told from others.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def install(app: FastAPI, plane: Plane) -> Minutes:
    """Authentication, the record of refusals, the safe headers, and the routes that are about tokens.

    The answer is to be closed before the plane is: it still has something to write.
    """
    minutes = Minutes(plane)
    app.state.authentication = Authentication(plane, minutes)
    app.add_middleware(ReadableTarget)
    app.add_middleware(RefusalRecord, minutes=minutes)
    app.add_middleware(SafeHeaders)
    app.include_router(api_tokens.router)
    app.include_router(links.router)
    return minutes


class ReadableTarget:
    """ASGI: 422 for an address that is not UTF-8. It would be read with other characters in place of what it says, and
    what is asked for, or made, would be something else than what was named."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for part, raw in (("path", scope.get("raw_path", b"")), ("query", scope["query_string"])):
                if not _is_readable(raw):
                    said = f"{part}: must be UTF-8, percent-encoded"
                    return await problem(422, said, field=part)(scope, receive, send)
        await self._app(scope, receive, send)
        return None


def _is_readable(raw: bytes) -> bool:
    if b"%" not in raw and raw.isascii():
        return True
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True


class SafeHeaders:
    """ASGI: sets the headers that a route did not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, safely)
