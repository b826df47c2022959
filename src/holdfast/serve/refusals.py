"""The record of requests that were turned away, and of when a credential was last used: written off their path.

Both are gathered in memory and written about once a second, in one statement each. Nobody can fill the memory or the
table by being refused: routes are written as templates, never as they were asked for; there is a bound on how much is
gathered between two writes and, in the store, on the rows there are, and what goes beyond is counted under one
address. What cannot be written now is written with the next; a process that is killed takes a second of it with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.domain.errors import HoldfastError
from holdfast.domain.tokens import Attempted
from holdfast.serve.plane import Plane
from holdfast.serve.problems import Refused

WRITTEN_EVERY = 1.0
MOST_GATHERED = 1_000
OTHER_ADDRESSES = "*"
LONGEST_ADDRESS = 64
USED_AGAIN_AFTER = 60.0
KEPT_SECONDS = 30 * 86_400.0
FORGOTTEN_EVERY = 3_600.0
CLOSED_WITHIN = 5.0
# Where the code that refused did not say more.
REASONS = {401: "unauthorized", 403: "wrong_queue", 429: "too_many_requests"}

logger = logging.getLogger("holdfast.serve")

_Key = tuple[str, str, str, str]


class Minutes:
    def __init__(self, plane: Plane, clock: Callable[[], float] = time.monotonic) -> None:
        self._plane = plane
        self._clock = clock
        self._refused: Counter[_Key] = Counter()
        self._used: set[str] = set()
        self._used_at: dict[str, float] = {}
        self._forgotten_at = clock()
        self._writing: asyncio.Task[None] | None = None

    def refused(self, credential: str, reason: str, route: str, address: str) -> None:
        key = (credential, reason, route, address[:LONGEST_ADDRESS])
        if len(self._refused) >= MOST_GATHERED and key not in self._refused:
            key = (credential, reason, route, OTHER_ADDRESSES)
        self._refused[key] += 1
        self._write_soon()

    def used(self, credential: str) -> None:
        now = self._clock()
        if now - self._used_at.get(credential, -USED_AGAIN_AFTER) < USED_AGAIN_AFTER:
            return
        self._used_at[credential] = now
        self._used.add(credential)
        self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._keep_writing())

    async def _keep_writing(self) -> None:
        while self._refused or self._used:
            await asyncio.sleep(WRITTEN_EVERY)
            await self.write()

    async def write(self) -> None:
        refused, self._refused = self._refused, Counter()
        used, self._used = self._used, set()
        attempts = [Attempted(*key, count) for key, count in refused.items()]
        try:
            if attempts:
                await self._plane.writes.call(lambda store: store.record_access_refusals(attempts))
                refused = Counter()
            if used:
                await self._plane.writes.call(lambda store: store.touch_tokens(sorted(used)))
            await self._forget_old()
        except Exception as error:
            if not isinstance(error, HoldfastError | Refused):
                logger.exception("refused attempts could not be written down")
            # Else the store is away, and whoever asks for it is told so. The bounds hold for what is kept, too.
            self._used |= used
            self._refused.update(dict(refused.most_common(MOST_GATHERED - len(self._refused))))

    async def _forget_old(self) -> None:
        now = self._clock()
        if now - self._forgotten_at < FORGOTTEN_EVERY:
            return
        self._forgotten_at = now
        self._used_at = {name: at for name, at in self._used_at.items() if now - at < USED_AGAIN_AFTER}
        await self._plane.writes.call(lambda store: store.forget_access_refusals(KEPT_SECONDS))

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.write(), CLOSED_WITHIN)


class RefusalRecord:
    """ASGI: whatever is answered with 401, 403 or 429 is on record, whoever refused it and why."""

    def __init__(self, app: ASGIApp, minutes: Minutes) -> None:
        self._app = app
        self._minutes = minutes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in REASONS:
                self._record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, watched)

    def _record(self, scope: Scope, status: int) -> None:
        state = scope.get("state", {})
        identity = state.get("identity")
        credential = state.get("credential", "") if identity is None else identity.id
        self._minutes.refused(credential, state.get("refusal", REASONS[status]), route_of(scope), address_of(scope))


def route_of(scope: Scope) -> str:
    """The template of its path. A route of a router within a router knows only its own part; the framework, all."""
    whole = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    return str(getattr(whole, "path_format", "(none)"))


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
