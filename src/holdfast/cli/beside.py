"""The control plane of `holdfast up`, in a thread beside the worker.

It begins once the worker knows its store, which the app may name, and ends after the worker has. The port is taken
before: a command that cannot listen where it was told should say so at once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from holdfast.cli.serve import HOST, PORT, say_welcome
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.events import Event, Events, WorkerMoved
from holdfast.domain.worker_states import WorkerState
from holdfast.observe.board import Board
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane, bind


def take_port(port: int | None) -> socket.socket:
    """The named one; else the usual one; else any, because a second app on this machine should work as well."""
    if port is not None:
        return bind(HOST, port)
    try:
        return bind(HOST, PORT)
    except ConfigurationError:
        return bind(HOST, 0)


class Beside:
    """Subscribes to the worker's events; `settings` is asked when the worker has its store."""

    def __init__(
        self,
        listener: socket.socket,
        settings: Callable[[], ServeSettings],
        events: Events,
        told: Callable[[str], None],
        board: Board | None,
    ) -> None:
        self._listener = listener
        self._settings = settings
        self._events = events
        self._told = told
        self._board = board
        self._control: ControlPlane | None = None

    def __call__(self, event: Event) -> None:
        knows_store = isinstance(event, WorkerMoved) and event.after is WorkerState.RECOVERING
        if knows_store and self._control is None:
            settings = self._settings()
            control = self._control = ControlPlane(settings, self._events, self._listener, self._board)
            control.start(wait=False)
            self._told(f"control plane: {control.url}")
            threading.Thread(target=say_welcome, args=(settings, control.url, control.refuse), daemon=True).start()

    def close(self) -> None:
        if self._control is not None:
            self._control.stop()
        self._listener.close()
