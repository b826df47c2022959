"""A request that waits for long was let in long ago: this tells it when its credential is no longer good.

One query a second for all who wait, and none while nobody does. A store that is away says nothing about anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from holdfast.domain.tokens import Standing

LOOK_EVERY_SECONDS = 1.0

LookUp = Callable[[Sequence[str]], Awaitable[list[Standing | None]]]


@dataclass(eq=False, slots=True)
class _Watched:
    over: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class Revocations:
    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._watched: dict[str, _Watched] = {}
        self._looking: asyncio.Task[None] | None = None

    async def over(self, credential: str) -> None:
        """Ends once it has been revoked or has expired."""
        watched = self._watched.setdefault(credential, _Watched())
        watched.waiting += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await watched.over.wait()
        finally:
            watched.waiting -= 1
            if not watched.waiting and self._watched.get(credential) is watched:
                del self._watched[credential]

    async def _look(self) -> None:
        while self._watched:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            ids = sorted(self._watched)
            try:
                standings = await self._look_up(ids)
            except Exception:
                continue
            for credential, standing in zip(ids, standings, strict=True):
                if (standing is None or not standing.live) and credential in self._watched:
                    self._watched.pop(credential).over.set()
