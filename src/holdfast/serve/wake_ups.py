"""What tells the hub early that there may be something to claim: notifications of Postgres, changes of an SQLite file,
messages in Redis.

All are hints. The lines poll as well, so that a listener which hears nothing costs latency and no job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.domain.events import Events
from holdfast.domain.events import WakeUps as WakeUpsAre
from holdfast.serve.options import ServeSettings
from holdfast.transports.pg_listen import Listener
from holdfast.transports.sqlite_changes import ChangeCheck
from holdfast.wiring.redis import open_stream_wake_up
from holdfast.wiring.sql import open_wake_up

if TYPE_CHECKING:
    from holdfast.transports.redis_streams.listener import StreamListener

LOOK_EVERY_SECONDS = 0.05


class WakeUps:
    """`ring` is called in the server's loop; `waiting` says how many would hear it."""

    def __init__(
        self, settings: ServeSettings, ring: Callable[[], None], waiting: Callable[[], int], events: Events
    ) -> None:
        self._settings = settings
        self._ring = ring
        self._waiting = waiting
        self._events = events
        self._source: Listener | ChangeCheck | None = None
        self._streams: StreamListener | None = None
        self._looking: asyncio.Task[None] | None = None

    def open(self) -> None:
        loop = asyncio.get_running_loop()

        def ring() -> None:
            with suppress(RuntimeError):  # the loop has ended since
                loop.call_soon_threadsafe(self._ring)

        def status(said: str) -> None:
            self._events.emit(WakeUpsAre(str(said)))

        settings = self._settings
        self._source = open_wake_up(settings.database_url, ring, settings.notify, status, settings.listen_url)
        if settings.redis is not None:
            self._streams = open_stream_wake_up(settings.redis, ring, status)
        if isinstance(self._source, ChangeCheck):
            self._looking = loop.create_task(self._look(self._source))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for source in (self._source, self._streams):
            if source is not None:
                await asyncio.to_thread(source.close)

    async def _look(self, changes: ChangeCheck) -> None:
        """A question that takes microseconds and no lock, and is only asked while somebody waits."""
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            if self._waiting() and changes.changed():
                self._ring()
