"""`holdfast serve`: the control plane."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.logging import LogFormat, LogLevel, make_logger
from holdfast.cli.session import Json, begin
from holdfast.domain.errors import HoldfastError, StoreUnavailable
from holdfast.domain.names import check_integer
from holdfast.settings import Settings, mask_secrets, mask_url

if TYPE_CHECKING:
    from holdfast.serve.options import ServeSettings

HOST, PORT = "127.0.0.1", 8787
STORE_SECONDS = 10.0
TRY_AGAIN_SECONDS = 2.0


def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others than loopback need a token.")
    ] = HOST,
    port: Annotated[int, typer.Option(metavar="N", help="0 takes any that is free.")] = PORT,
    log_format: LogFormat = None,
    log_level: LogLevel = "info",
    json: Json = False,
) -> None:
    """Serve the worker contract and the client API over HTTP, and do the periodic duties."""
    from holdfast.domain.events import Events
    from holdfast.observe.logs import LogSubscriber, standard_logging
    from holdfast.serve.running import ControlPlane
    from holdfast.tasks.tracing import FLUSH_SECONDS, flush, set_up

    session = begin(context, json)
    settings = session.settings()
    chosen = serve_settings(settings, settings.database_url, host, port)
    logger = make_logger(session, log_format, log_level)
    may_bind(chosen)
    set_up("holdfast-serve", logger.warning)
    control = ControlPlane(chosen, Events(LogSubscriber(logger)))
    logger.info(f"listening on {control.url}", url=control.url, store=mask_url(chosen.database_url))
    threading.Thread(target=say_welcome, args=(chosen, control.url, control.refuse, output.remark), daemon=True).start()
    try:
        with standard_logging(logger):
            code = control.run()
    finally:
        flush(FLUSH_SECONDS)
    raise typer.Exit(code)


def serve_settings(
    settings: Settings, database_url: str, host: str, port: int, *, duties: bool = True
) -> ServeSettings:
    from holdfast.domain.timing import choose
    from holdfast.serve.options import Limits, ServeSettings
    from holdfast.wiring.redis import stream_options
    from holdfast.worker.identity import worker_id

    return ServeSettings(
        database_url=database_url,
        host=host,
        port=check_integer(port, "--port", 0, 65_535),
        name=worker_id(f"serve-{socket.gethostname()}-{os.getpid()}"),
        notify=settings.notify,
        listen_url=settings.listen_url,
        redis=stream_options(settings),
        rq_url=settings.rq_url,
        rq_serializer=settings.rq_serializer,
        artifacts_url=settings.artifacts_url,
        timing=choose(settings.lease_seconds, settings.heartbeat_seconds),
        poll_seconds=settings.poll_interval,
        upkeep_seconds=settings.upkeep_seconds,
        stop_seconds=settings.grace_seconds,
        duties=duties,
        metrics=settings.metrics,
        limits=Limits(
            requests_per_second=settings.rate_per_second, burst=max(1, math.ceil(2 * settings.rate_per_second))
        ),
    )


def may_bind(chosen: ServeSettings) -> None:
    """Refused where others could reach a server that has no token. A store that is away lets nobody in either, and is
    no reason not to begin: it comes back by itself. On the loopback it is not even asked."""
    from holdfast.serve.addresses import is_loopback
    from holdfast.serve.links import check_bind
    from holdfast.wiring.sql import open_store

    if is_loopback(chosen.host):
        return
    try:
        store = open_store(chosen.database_url, pool_size=1, notify=False, timeout_seconds=STORE_SECONDS)
    except StoreUnavailable as error:
        output.remark(_away(error))
        return
    try:
        check_bind(chosen.host, store)
    finally:
        store.close()


def say_welcome(
    chosen: ServeSettings,
    url: str,
    refuse: Callable[[HoldfastError], None],
    remark: Callable[[str], None] = lambda _said: None,
) -> None:
    """Beside a server that listens already, as soon as there is a store. One that does not fit ends the server."""
    from holdfast.serve.links import welcome
    from holdfast.wiring.sql import open_store

    store = None
    told = False
    while store is None:
        try:
            store = open_store(chosen.database_url, pool_size=1, notify=False, timeout_seconds=STORE_SECONDS)
        except StoreUnavailable as error:
            if not told:
                remark(_away(error))
            told = True
            time.sleep(TRY_AGAIN_SECONDS)
        except HoldfastError as error:
            refuse(error)
            return
    try:
        welcome(store, url, sys.stderr)
    except StoreUnavailable:
        return  # `holdfast tokens create` makes the first one as well
    finally:
        store.close()


def _away(error: StoreUnavailable) -> str:
    return f"The store is away, and is waited for: {mask_secrets(str(error))}"
