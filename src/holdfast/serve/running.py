"""A control plane that runs: a socket, a loop, a server, and an orderly end.

A stop closes the door first; then everybody who waits is answered, event streams end, and requests under way are
finished, for as long as `stop_seconds`; then those that wait for the store are told that it has not answered. A second
signal does not wait for them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.events import Events
from holdfast.observe.board import Board
from holdfast.serve.app import create_app
from holdfast.serve.options import ServeSettings
from holdfast.serve.plane import Plane, make_plane
from holdfast.serve.protocol import BoundedProtocol
from holdfast.serve.request_metrics import make_board, put_on

BACKLOG = 2048
# Longer than clients keep an idle connection (ours: a minute): then it is them who close, and no request is lost to it.
KEEP_ALIVE_SECONDS = 75
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on; every way in which it cannot be had is the caller's to mend."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(_why_not(host, port, error)) from error


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is taken by another program: name another with --port, or 0 for any"
        case errno.EACCES:
            return f"this user may not listen on port {port}: name one above 1023 with --port"
        case _:
            said = error.strerror or str(error)
            return f"cannot listen on {host} port {port} ({said}): name an address of this machine with --host"


class ControlPlane:
    """`run` serves in the calling thread until a signal; `start` and `stop` serve in a thread of their own."""

    def __init__(
        self,
        settings: ServeSettings,
        events: Events | None = None,
        listener: socket.socket | None = None,
        board: Board | None = None,
    ) -> None:
        self.settings = settings
        self._events = Events() if events is None else events
        # One that is given is somebody's in this process who counts the duties already.
        self._board = make_board(self._events) if board is None else board
        self._socket = bind(settings.host, settings.port) if listener is None else listener
        self._address = self._socket.getsockname()[:2]
        self._server: _Server | None = None
        self.plane: Plane | None = None  # once it serves
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._failure: BaseException | None = None
        self._refusal: HoldfastError | None = None
        self._stopped = False

    @property
    def url(self) -> str:
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def connections(self) -> int:
        return 0 if self._server is None else len(self._server.server_state.connections)

    def run(self) -> int:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve())
        if self._refusal is not None:
            raise self._refusal
        return 0

    def refuse(self, error: HoldfastError) -> None:
        """From any thread: it turned out that it must not run. `run` ends with that."""
        self._refusal = error
        self._end()

    def start(self, *, wait: bool = True) -> None:
        self._thread = threading.Thread(target=self._in_thread, name="holdfast-serve", daemon=True)
        self._thread.start()
        if wait:
            self._begun.wait()
            if self._failure is not None:
                raise self._failure

    def stop(self) -> None:
        self._end()
        if self._thread is not None:
            self._thread.join()
        self._socket.close()

    def _end(self) -> None:
        self._stopped = True
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self) -> None:
        self.plane = plane = make_plane(self.settings, self._events, self._board)
        put_on(self._board, plane)
        self._server = _Server(_config(create_app(plane), self.settings), plane, self._begun.set)
        self._server.should_exit = self._stopped
        await self._server.serve([self._socket])

    def _in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._begun.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, plane: Plane, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._plane = plane
        self._tell_begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell_begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._plane.begin_stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but an orderly end is one: it would raise the signal again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_news(record: logging.LogRecord) -> bool:
    """An exception of ours is told as an event already (`problems.py`)."""
    return not str(record.msg).startswith("Exception in ASGI application")


def _config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    class Protocol(BoundedProtocol):
        limits = settings.limits

    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # Those that the plane cuts off at the end of the grace are still to be answered.
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds) + 1,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
