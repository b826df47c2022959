"""One stream of transitions, told to one client until it leaves, its time is over or the server stops.

`event: transition` tells of one. Its id lets a client that was cut off go on from there (`Last-Event-ID`); because
transactions do not commit in the order of their times, it is then told those of the last seconds once more, and
(job_id, seq) says which they are. `event: gap` says that at least so many were left out: the client was too slow, or
away for too long. A token that is revoked ends its streams within seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime, timedelta

from fastapi import Request

from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.domain.feed import FeedPlace, Transition
from holdfast.serve.api.live import REACH_FURTHER_BACK, Key, Listener, LiveFeed, key_of
from holdfast.serve.api.values import utc_text
from holdfast.serve.auth import Identity, get_authentication
from holdfast.serve.problems import Refused

KEEP_ALIVE_SECONDS = 15.0
CHECK_TOKEN_SECONDS = 2.0
LOOK_BACK = timedelta(hours=1)
MOST_LOOKED_BACK = 5_000
REMEMBER_SECONDS = 30.0  # what was told while looking back; by then the live feed has seen it, too


class Speaking:
    def __init__(
        self,
        request: Request,
        identity: Identity,
        live: LiveFeed,
        listener: Listener,
        stopping: asyncio.Event,
        seconds: float,
    ) -> None:
        self._request = request
        self._identity = identity
        self._live = live
        self._listener = listener
        self._stopping = stopping
        self._ends_at = time.monotonic() + seconds
        self._checked_at = time.monotonic()
        self._told: set[Key] = set()

    async def chunks(self, place: datetime | None) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n: listening\n\n"
        if place is not None:
            async for chunk in self._looking_back(place):
                yield chunk
        said_at = forget_at = time.monotonic()
        while self._left() > 0 and not self._stopping.is_set():
            wait = min(self._left(), said_at + KEEP_ALIVE_SECONDS - time.monotonic())
            await self._listener.wait(self._stopping, wait)
            text = self._news()
            if not text and time.monotonic() - said_at >= KEEP_ALIVE_SECONDS:
                text = b": still here\n\n"
            if text:
                if not await self._is_allowed():
                    return
                yield text
                said_at = time.monotonic()
            if time.monotonic() - forget_at > REMEMBER_SECONDS:
                self._told.clear()

    def _left(self) -> float:
        return self._ends_at - time.monotonic()

    def _news(self) -> bytes:
        lost, found = self._listener.take()
        told = b"".join(event_text(item) for item in found if key_of(item) not in self._told)
        return gap_text(lost) + told if lost else told

    async def _looking_back(self, place: datetime) -> AsyncIterator[bytes]:
        """What happened since, as far as that is not too long ago, nor too much."""
        now = (await self._live.read(None, 1)).now
        if place < now - LOOK_BACK:
            place = now - LOOK_BACK
            yield gap_text(1)
        more = False
        async for page in self._live.since(FeedPlace(min(place, now) - REACH_FURTHER_BACK), MOST_LOOKED_BACK):
            found = [item for item in page.items if self._listener.wants(item)]
            self._told.update(key_of(item) for item in found)
            more = page.more
            if found:
                yield b"".join(event_text(item) for item in found)
        if more:
            yield gap_text(1)

    async def _is_allowed(self) -> bool:
        if time.monotonic() - self._checked_at < CHECK_TOKEN_SECONDS:
            return True
        self._checked_at = time.monotonic()
        try:
            identity = await get_authentication(self._request).identify(self._request)
        except Refused as refused:
            return refused.status != 401
        except HoldfastError:  # the store is away: neither a yes nor a no
            return True
        return identity == self._identity


def event_text(transition: Transition) -> bytes:
    data = json.dumps({**asdict(transition), "at": utc_text(transition.at)}, separators=(",", ":"))
    return f"id: {transition.place.text}\nevent: transition\ndata: {data}\n\n".encode()


def gap_text(lost: int) -> bytes:
    return f'event: gap\ndata: {{"at_least":{lost}}}\n\n'.encode()


def place_of(last_event_id: str) -> datetime:
    place = FeedPlace.of(last_event_id)
    if place is None or place.seq < 0:
        raise InvalidInput("Last-Event-ID", "must be the id of an event of this stream; leave it out to begin now")
    return place.at
