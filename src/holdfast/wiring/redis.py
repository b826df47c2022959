"""Redis Streams: only a program that is told of a Redis needs its library.

A process opens one transport, whatever number of stores it puts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from holdfast.domain.errors import ConfigurationError
from holdfast.maintenance.chores import Chore
from holdfast.tasks.home import AppStore
from holdfast.transports.redis_streams.options import LOOK_SECONDS, StreamOptions

if TYPE_CHECKING:
    from holdfast.ports import OfferStore
    from holdfast.settings import Settings
    from holdfast.stores.sql_store import SqlStore
    from holdfast.transports.redis_streams.listener import StreamListener
    from holdfast.transports.redis_streams.transport import Transport

__all__ = [
    "LOOK_SECONDS",
    "StreamOptions",
    "open_stream_wake_up",
    "open_transport",
    "published",
    "stream_chore",
    "stream_options",
    "streamed",
]

SWEEPING = "redis_sweep"


def stream_options(settings: Settings, redis_url: str | None = None) -> StreamOptions | None:
    """What the settings say of Redis; None where they name none. `redis_url` is a flag that overrules them."""
    url = redis_url or settings.redis_url
    if url is None:
        return None
    return StreamOptions(
        url=url,
        prefix=settings.redis_prefix,
        window=settings.redis_window,
        timeout_seconds=settings.redis_timeout_seconds,
    )


def open_transport(options: StreamOptions) -> Transport:
    """Redis is looked for at the first use, and so is the library that speaks to it."""
    if find_spec("redis") is None:
        raise ConfigurationError(
            "A Redis is named (REDIS_URL or --redis), and redis is not installed: pip install 'holdfast[redis]'"
        )
    from holdfast.transports.redis_streams.transport import Transport

    return Transport(options)


def streamed(
    store: SqlStore, transport: Transport, *, look_seconds: float = 0.0, close_transport: bool = False
) -> AppStore:
    """The store, whose jobs then also travel in messages. `look_seconds`: how often a claim that found no message
    looks into the database; who must know for certain that nothing is due, looks every time."""
    from holdfast.transports.redis_streams.store import StreamStore

    make: Any = StreamStore
    return cast(AppStore, make(store, transport, look_seconds, transport.close if close_transport else None))


def published(store: SqlStore, settings: Settings) -> AppStore:
    """The store of a client: where the settings name a Redis, what it enqueues is published there."""
    options = stream_options(settings)
    return store if options is None else streamed(store, open_transport(options), close_transport=True)


def stream_chore(store: OfferStore, options: StreamOptions) -> Chore:
    """Tops the streams up, and puts right what got lost."""
    from holdfast.transports.redis_streams.sweeper import Sweeper

    return Chore(SWEEPING, options.sweep_seconds, Sweeper(lambda: store, options).steps)


def open_stream_wake_up(
    options: StreamOptions, ring: Callable[[], None], status: Callable[[str], None] = lambda _status: None
) -> StreamListener:
    """What tells early that there are messages. Both are called in the listener's thread."""
    from holdfast.transports.redis_streams.listener import StreamListener

    listener = StreamListener(options, ring, changed=status)
    listener.start()
    return listener
